#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Completion of qosctl and qos-balance in all shells: each verb and each option of the help is offered. Shells that are
not installed are not run; the structure of their files is checked all the same.

test_completion.py QOSCTL QOS_BALANCE"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")
PROGRAMS = {}
SHELLS = ("bash", "zsh", "fish")
DEADLINE = 60
# What qosctl leaves to the shells, as src/qosctl/complete.h has it
LEFT_TO_SHELLS = (":units", ":files", ":hosts", ":command")

BASH = r"""
compopt() { :; }
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"_${1//-/_}"
printf "%s\n" "${COMPREPLY[@]}"
"""

# The functions of the completion system print what they are given
ZSH = r"""
_describe() {
        local -a arrays
        arrays=(${@:#-*})
        shift arrays
        local name item; for name in $arrays; do
                [[ $name == '' ]] && continue
                for item in ${(P)name}; do print -r -- ${${item//\\:/$'\1'}%%:*}; done
        done
}
compadd() { [[ $1 == -a ]] && print -rl -- ${(P)2} }
compset() { [[ $1 == -P && $PREFIX == ${~2}* ]] && PREFIX=${PREFIX##${~2}}; }
_files() { print -rl -- $PREFIX*(N) }
_hosts() { print -r -- a-host }
_command_names() { print -r -- a-command }
_arguments() {
        local spec; for spec in $@; do
                spec=${spec#\(*\)}
                [[ $spec == -*\[* ]] && print -r -- ${${spec%%\[*}%+}
        done
}
file=$1; shift
words=("$@") CURRENT=$# PREFIX=${@[-1]}
source $file
"""

FISH = r"""
source $argv[1]
complete -C $argv[2] | string replace -r '\t.*' ''
"""


class Test(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="completion-")
        for name, path in PROGRAMS.items():
            os.symlink(path, f"{self.directory}/{name}")
        with open(f"{self.directory}/systemctl", "w") as f:
            f.write("#!/bin/sh\nprintf '%s\\n' 'nginx.service loaded active' 'dev-a\\x2db.service loaded active'\n")
        os.chmod(f"{self.directory}/systemctl", 0o755)
        self.env = {"PATH": f"{self.directory}:{os.environ['PATH']}", "HOME": self.directory, "LC_ALL": "C.UTF-8",
                    "HOSTFILE": "/etc/hosts",
                    "QOSD_ADDRESS": f"{self.directory}/no-daemon"} | \
            {k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "UBSAN_", "LSAN_"))}

    def tearDown(self):
        shutil.rmtree(self.directory)

    def run_program(self, *command):
        r = subprocess.run(command, env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(r.stderr, "")
        return r.stdout

    def complete(self, shell, *words):
        """What the shell offers for the last one of the words."""
        file = source_of(words[0], shell)
        if shell == "bash":
            # "=" is a word of its own to bash
            split = [w for word in words for w in re.split("(=)", word) if w or not word] or [""]
            out = self.run_program("bash", "-c", BASH, "bash", file, *split)
        elif shell == "zsh":
            out = self.run_program("zsh", "-f", "-c", ZSH, "zsh", file, *words)
        else:
            out = self.run_program("fish", "--no-config", "-c", FISH, file, " ".join(words))
        return sorted(set(out.splitlines()) - {""})

    def help(self, program, *arguments):
        """The words of the help that begin its lines, and their short names."""
        words = []
        for line in self.run_program(program, *arguments).splitlines():
            m = re.match(r"  (?:(-.) |   )?(--[a-z-]+=?|[a-z][a-z-]*)?", line)
            words += [w for w in m.groups() if w] if m else []
        return words

    def test_all(self):
        """Verbs and options: those of the help, no more and no less."""
        known = self.help("qosctl", "help")
        verbs = sorted(w for w in known if not w.startswith("-"))
        options = sorted(w for w in known if w.startswith("-"))
        self.assertIn("diagnose", verbs)
        self.assertIn("--window=", options)
        self.assertIn("-H", options)
        self.assertIn("-P", options)
        for shell in filter(shutil.which, SHELLS):
            self.assertEqual(self.complete(shell, "qosctl", ""), verbs, shell)
            self.assertEqual(self.complete(shell, "qosctl", "help", ""), verbs)
            offered = self.complete(shell, "qosctl", "-") + self.complete(shell, "qosctl", "--")
            self.assertEqual(sorted(set(offered)), options)

    def test_verb(self):
        """Options of a verb: those of its help, and those of all verbs."""
        common = {"-h", "--help", "--version", "-H", "--host=", "--user", "--json=", "-j", "--no-pager", "--no-legend",
                  "--no-ask-password"}
        verbs = [w for w in self.help("qosctl", "help") if not w.startswith("-")]
        self.assertGreater(len(verbs), 20)
        for verb in verbs:
            # All shells offer what qosctl prints, which the test before this one checks
            expected = common | {w for w in self.help("qosctl", "help", verb) if w.startswith("-")}
            out = self.run_program("qosctl", "--complete", verb, "-")
            self.assertEqual({line.split("\t")[0] for line in out.splitlines()}, expected, verb)
            self.assertNotIn("\t\n", out)

    def test_values(self):
        for shell in filter(shutil.which, SHELLS):
            prefix = "" if shell == "bash" else "--format="
            self.assertEqual(self.complete(shell, "qosctl", "metrics", "--format=o"),
                             [prefix + f for f in ("openmetrics", "openmetrics2",
                                                   *(() if shell != "zsh" else ("prometheus", "protobuf")))])
            self.assertIn("nginx.service", self.complete(shell, "qosctl", "attach", "n"))
            os.makedirs(f"{self.directory}/.ssh", exist_ok=True)
            with open(f"{self.directory}/.ssh/config", "w") as f:
                f.write("Host web1\n")
            found = self.complete(shell, "qosctl", "--host=a,")
            self.assertIn(["a,localhost", "a-host", "--host=a,web1"][SHELLS.index(shell)], found, shell)
            with open(f"{self.directory}/saved.json", "w") as f:
                f.write("{}")
            found = self.complete(shell, "qosctl", "diagnose", "--save=sav")
            self.assertTrue(found and found[0].endswith("saved.json"), f"{shell}: {found}")

    def test_lists(self):
        self.assertEqual(self.run_program("qosctl", "--complete", "attach", "--probes=tls,c").splitlines(),
                         ["--probes=tls," + p for p in ("requests", "tls", "cpu", "block", "memory", "storage",
                                                        "network")])
        self.assertEqual(self.run_program("qosctl", "--complete", "verify", ""), ":units\n:files\n")
        self.assertEqual(self.run_program("qosctl", "--complete", "check-probe", ""), ":files\n")
        self.assertEqual(self.run_program("qosctl", "--complete", "-H", ""), ":hosts\n")
        self.assertEqual(self.run_program("qosctl", "--complete", "measure", "nginx", "--", ""), ":command\n")
        self.assertEqual(self.run_program("qosctl", "--complete", "diagnose", "nginx", ""), "")

    def test_balance(self):
        options = sorted({w for w in self.help("qos-balance", "--help") if w.startswith("-")})
        self.assertIn("--target=", options)
        for shell in filter(shutil.which, SHELLS):
            offered = self.complete(shell, "qos-balance", "-") + self.complete(shell, "qos-balance", "--")
            # "=" is none of the name to fish
            self.assertEqual(sorted({w.rstrip("=") for w in offered}), sorted(w.rstrip("=") for w in options), shell)
            if shell != "zsh":  # there they are what _arguments finds
                self.assertEqual([w.removeprefix("--by=") for w in self.complete(shell, "qos-balance", "--by=")],
                                 ["freeze", "quota"])
                self.assertIn("nginx.service", self.complete(shell, "qos-balance", "n"))
                self.assertIn("nginx.service",
                              [w.removeprefix("--unit=") for w in self.complete(shell, "qos-balance", "--unit=n")])

    def test_left_to_shells(self):
        """Each shell finds what qosctl does not, and qosctl leaves nothing else to them."""
        with open(f"{SOURCES}/qosctl/complete.h") as f:
            self.assertEqual(set(re.findall('":[a-z]+"', f.read())), {f'"{d}"' for d in LEFT_TO_SHELLS})
        for shell in SHELLS:
            with open(source_of("qosctl", shell)) as f:
                text = f.read()
            self.assertEqual({d for d in LEFT_TO_SHELLS if d in text}, set(LEFT_TO_SHELLS), shell)
            self.assertIn("qosctl --complete", text, shell)

    def test_structure(self):
        """Quotes, brackets and blocks are balanced; no file of which the last block is not ended passes."""
        for program in PROGRAMS:
            for shell in SHELLS:
                with open(source_of(program, shell)) as f:
                    text = f.read()
                check = structure_of_fish if shell == "fish" else structure_of_sh
                self.assertIsNone(check(text), f"{program}, {shell}")
                end = "end" if shell == "fish" else "}"
                at = text.rindex(f"\n{end}\n")
                self.assertIsNotNone(check(text[:at + 1] + text[at + len(end) + 2:]), f"{program}, {shell}")


def source_of(program, shell):
    return f"{SOURCES}/{program}/{program}.{shell}"


def structure_of_sh(text):
    """The blocks of zsh are those of bash, which does not look into expansions here."""
    r = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=DEADLINE)
    return r.stderr or None


def structure_of_fish(text):
    depth = 0
    for n, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as e:
            return f"line {n}: {e}"
        if words and words[0] in ("function", "for", "while", "if", "switch", "begin"):
            depth += 1
        elif words and words[0] == "end":
            depth -= 1
        if depth < 0 or line.count("(") != line.count(")") and "'" not in line:
            return f"line {n}: unbalanced"
    return f"{depth} blocks without an end" if depth else None


if __name__ == "__main__":
    PROGRAMS = {"qosctl": os.path.abspath(sys.argv[1]), "qos-balance": os.path.abspath(sys.argv[2])}
    unittest.main(argv=sys.argv[:1])
