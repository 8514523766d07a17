#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every integer of bpf/core/kernel.h is unsigned: the kernel changes the size of fields, and libbpf follows for these
only."""

import re
import sys

SIGNED = re.compile(r'(?<!unsigned )\b(int|long|short|__s8|__s16|__s32|__s64|signed)\b')

with open(sys.argv[1]) as f:
    text = f.read()
begin, end = text.index('#pragma clang attribute push'), text.index('#pragma clang attribute pop')
first = text.count('\n', 0, begin) + 1
body = re.sub(r'/\*.*?\*/', lambda m: re.sub(r'[^\n]', ' ', m[0]), text[begin:end], flags=re.DOTALL)

wrong = [(n, line.strip()) for n, line in enumerate(body.split('\n'), first)
         if SIGNED.search(line.replace('unsigned long long', 'unsigned').replace('unsigned long', 'unsigned'))]
for n, line in wrong:
    print(f'{sys.argv[1]}:{n}: signed: {line}')
sys.exit(bool(wrong))
