# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is there after a boot. The units in boot/ are in the image of the virtual machine."""

import scenario
from scenario import check, equal, test


@test(needs_vm="it does not boot with qosd")
def the_first_request():
    """Of a unit with [X-QoS]: who is ordered after qosd is observed before it starts."""
    seen = scenario.after_boot
    check(seen, "nothing was seen after the boot")
    equal(seen["restarts"], "0", f"restarts of qosd, which said {seen['journal']}")
    equal(seen["client"], "active", "the one who asks")
    equal((seen["holds"], seen["thresholds"]), (["unitFile"], ["busy"]), "what is in force")
    equal(seen["total"], 7, "requests counted")
