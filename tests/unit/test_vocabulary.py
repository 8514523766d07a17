#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later

"""No identifier of src/, bpf/, dbus/ and docs/ is made of a retired term: docs/VOCABULARY.md has those that replaced them."""

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
    "given up by clients", "segments sent again", "turned away", "made to leave", "to another CPU", "one answer per question",
    "Worst wait", "did not come true", "does not know what to do", "does not take --", "cannot be left out", "is no unit's name",
    "[Bb]egins? to observe", "[Ss]tops? to observe", "what was kept", "since it is watched")))


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
    for bad in "struct qos_unit *u;", "talk_forget(t);", "Alarm *a;", "alarms_new(m)", "SHARE_ROW", "`requests_state_too`":
        if not list(found_in(bad)):
            sys.exit(f"{bad!r} is not found")
    for good in "Declared in meson.build.", "struct qos_unit_map *u;", "metalk_x", "requests_state_nested":
        if list(found_in(good)):
            sys.exit(f"{good!r} is found")

    if [phrase for _, phrase in phrases_in("3 turned away\n3 dropped")] != ["turned away"]:
        sys.exit("Retired phrases are not found")

    root, n = Path(sys.argv[1]), 0
    for directory in "src", "bpf", "dbus", "docs":
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
    sys.exit(n > 0)


main()
