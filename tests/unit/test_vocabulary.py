#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later

"""No retired term is in an identifier, and none in comments, messages and documents. docs/VOCABULARY.md has the terms
that replaced them."""

import re
import sys
from pathlib import Path

# Beginnings of identifiers
PREFIXES = """
alarm_ alarms_ ALARM_ ALARMS_ Alarm cost_begin_ COST_RUNS declared_ on_declared_ departure_ DEPARTURE_
feed_ GRID_ grid_ library_enter library_leave library_egress library_mux MAP_MUXES MAP_NESTS MAP_SEALS MAP_SHARDS
MAP_STRAINS MAP_TALKS MAP_UNSEALED mux_ pump_ QOS_CELL qos_cell QOS_NEST QOS_ROW qos_row QOS_SHARD qos_shard QOS_WATCH
SHARE_ALONE SHARE_ROW talk_ TALK_ text_mend unit_look unsealed_ UnitLook varlink_pump_ VarlinkPump WindowBase WindowBook
ContentionBook group_cache_ GroupCache look_again_
""".split()

# Whole identifiers
WORDS = """
block_complete_too block_done_too book_since booking_get closed_fold closed_free content_mux content_seal content_unseal
Declared Declaration cost_begin cost_end cpu_move handovers libbpf_complaint complain_oom MachineReading muxes nest_get
nest_known nest_learn nest_notify nest_prune nest_publish nest_schedule nest_settle peaks_note place_get probe_set_nest
probe_settle probe_start_more probe_stop_more qos_challengers qos_inquiry qos_library qos_nest qos_open qos_passed
qos_peaks qos_resource_row qos_session qos_unit qos_watch requests_share requests_state_too row_book seal_piece
service_run shard_move shard_shift share_apply share_book share_count share_now share_sum strain_get STATUS_FINE Talker
turns_get turns_note unit_begin_books unit_close_book unit_let_go unit_need_base unit_open_book unit_retire_view
units_find_passed units_retire units_settle unix_unnoted window_fly window_judge without_reserve
""".split()

RETIRED = re.compile(r"(?<!\w)(?:(?:%s)\w*|(?:%s)(?!\w))" % ("|".join(PREFIXES), "|".join(WORDS)))
# Words of prose, too: retired only as types
PROSE = {"Declared", "Declaration", "Alarm", "Alarms", "Talker"}

# Phrases that users read, in qosctl and its manual
PHRASES = re.compile("|".join((
    "given up by clients", "segments sent again", "turned away", "made to leave", "to another CPU",
    "one answer per question",
    "Worst wait", "did not come true", "does not know what to do", "does not take --", "cannot be left out",
    "is no unit's name",
    "[Bb]egins? to observe", "[Ss]tops? to observe", "what was kept", "since it is watched")))


# Comments, messages, documents: what follows is a hint, the sentence is to be written anew
DIALECT = {
    r"book(?:s|ed|ing|ings)?": "map, record",
    r"nests?": "hierarchy, ancestor, contain",
    r"rooms?(?! for\b)": "module",
    r"(?:un)?answer(?:s|ed|ing)?": "response, send",
    r"questions?": "request",
    r"ask(?:s|ed|ing)?": "request, query",
    r"(?:told|tells?)": "report, distinguish",
    r"(?:is|are|was|were) so(?=[.,:;)]|$)": "say what holds",
    r"gone ones": "including retained units",
    r"lies? in": "is contained in",
    r"held back|holds? back": "limited",
    r"sent again": "retransmitted",
    r"turned away": "refused, dropped",
    r"lets? go(?: of)?": "release",
    r"for ever": "permanently",
    # A user may be somebody who does something; things, and the subject of a sentence, are not
    r"(?<!one )(?<!body )(?<!user )(?<!users )(?<!clients )(?<!people )(?<!those )who": "name the subject",
    r"whom": "name the object",
    r"(?:(?<=^)|(?<=[.:;(] )|(?<= (?:of|is|or|by|in|to) )|(?<= (?:are|and|for|say|who) )|"
    r"(?<= (?:says|know|with|from) ))whose":
        "name the owner",
}
DIALECT_RE = re.compile("|".join(fr"(?<![\w/.\"'`-])(?:{pattern})(?![\w/\"'`(=_-])" for pattern in DIALECT), re.I)
# A word of each of these, without which no line needs a look: most have none
DIALECT_WORDS = frozenset("""book books booked booking bookings nest nests room rooms answer answers answered answering unanswer
unanswers unanswered unanswering question questions ask asks asked asking told tell tells so gone lie lies held hold holds sent
turned let lets ever who whom whose""".split())
WORD_RE = re.compile("[a-z]+")
# A sentence that begins in one comment and goes on in the next
ELLIPSIS_RE = re.compile(r"^(?:…|\.\.\.)|(?<=[^,] )(?:…|\.\.\.)$")

C_TOKENS = re.compile(r'''/\*(.*?)\*/|//([^\n]*)|"((?:[^"\\\n]|\\.)*)"|'(?:[^'\\\n]|\\.)+\'''', re.S)
PYTHON_TOKENS = re.compile(r'''"""(.*?)"""|#([^\n]*)|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)\'''', re.S)
HASH_TOKENS = re.compile(r"(?m)(?:^|(?<=\s))#([^\n]*)")

# What nobody writes by hand, and what has happened
UNWRITTEN = "docs/bench/", "NEWS.md", "tests/unit/test_vocabulary.py"


def texts_in(path, text):
    """Comments, and strings of more than a word, as (line number, text, whether it is a comment)"""
    if path.suffix in (".md", ".xml") or re.search(r"\.[1-8](?:\.in)?$", path.name):
        yield 1, text, False
        return
    tokens = {".c": C_TOKENS, ".h": C_TOKENS, ".py": PYTHON_TOKENS}.get(path.suffix, HASH_TOKENS)
    number, end = 1, 0
    for match in tokens.finditer(text):
        i = match.lastindex
        if i and (i < 3 or " " in match[i]):
            number += text.count("\n", end, match.start(i))
            end = match.start(i)
            yield number, match[i], i < 3


def dialect_in(path, text):
    for start, part, comment in texts_in(path, text):
        if comment and (match := ELLIPSIS_RE.search(part.strip(" *\n"))):
            yield start, match[0]
        if DIALECT_WORDS.isdisjoint(WORD_RE.findall(part.lower())):
            continue
        for number, line in enumerate(part.splitlines(), start):
            for match in DIALECT_RE.finditer(line.lstrip(" *#")):
                yield number, match[0]


def hint_of(word):
    return next((hint for pattern, hint in DIALECT.items() if re.match(pattern, word, re.I)), "say it whole")


def check_dialect(root):
    for name, bad in (("a.c", "/* Who asks. */"), ("a.c", "/* A lock\n * whose holder it is */"),
                      ("a.c", "/* And then\n … */"),
                      ("a.c", 'f("the book of %s");'), ("a.py", "# is so."), ("a.md", "An answer"),
                      ("a.1", "It is asked."),
                      ("a.sh", "x  # rooms"), ("a.xml", "<p>gone ones, too</p>")):
        if not list(dialect_in(Path(name), bad)):
            sys.exit(f"{bad!r} is not found")
    for name, good in (("a.c", 'if (answer) f("answer");'),
                       ("a.c", "/* A unit whose control group is empty, room for it */"),
                       ("a.c", '"UNIT..."'), ("a.py", "questions(1)"), ("a.md", "`libbook.h` and ask_password()")):
        if list(dialect_in(Path(name), good)):
            sys.exit(f"{good!r} is found")

    n = 0
    for path in sorted(p for d in ("src", "bpf", "dbus", "metrics", "docs", "tests")
                       for p in (root / d).rglob("*")) + [root / "README.md"]:
        name = str(path.relative_to(root))
        if name.startswith(UNWRITTEN) or "fuzz" in path.parts and not path.suffix or not path.is_file() or \
                not (path.suffix in (".c", ".h", ".py", ".md", ".xml", ".varlink", ".build", ".bash", ".service", ".in")
                     or re.search(r"\.[1-8]$", name) or path.parent.name == "lab"):
            continue
        for number, word in dialect_in(path, path.read_text(encoding="utf-8")):
            print(f"{name}:{number}: {word!r} is retired: {hint_of(word)}")
            n += 1
    return n


def phrases_in(text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in PHRASES.finditer(line):
            yield number, match[0]


def found_in(text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in RETIRED.finditer(line):
            if match[0] not in PROSE or re.search(r"\b%s \*|\} %s;|struct %s\b" % ((match[0],) * 3), line):
                yield number, match[0]


def main():
    # The test sees what it is to see
    for bad in ("struct qos_unit *u;", "talk_forget(t);", "Alarm *a;", "alarms_new(m)", "SHARE_ROW",
                "`requests_state_too`"):
        if not list(found_in(bad)):
            sys.exit(f"{bad!r} is not found")
    for good in "Declared in meson.build.", "struct qos_unit_map *u;", "metalk_x", "requests_state_nested":
        if list(found_in(good)):
            sys.exit(f"{good!r} is found")

    if [phrase for _, phrase in phrases_in("3 turned away\n3 dropped")] != ["turned away"]:
        sys.exit("Retired phrases are not found")

    root, n = Path(sys.argv[1]), 0
    for directory in "src", "bpf", "dbus", "metrics", "docs":
        for path in sorted((root / directory).rglob("*")):
            if path.suffix not in (".c", ".h", ".xml", ".md", ".build") or "bench" in path.parts:
                continue
            for number, word in found_in(path.read_text(encoding="utf-8")):
                print(f"{path.relative_to(root)}:{number}: '{word}' is retired, see docs/VOCABULARY.md")
                n += 1
    for path in [root / "README.md", root / "docs/qosctl.1", *sorted((root / "src/qosctl").glob("*.c"))]:
        for number, phrase in phrases_in(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(root)}:{number}: '{phrase}' is retired, see docs/HACKING.md")
            n += 1
    n += check_dialect(root)
    sys.exit(n > 0)


main()
