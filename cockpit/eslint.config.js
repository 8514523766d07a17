// SPDX-License-Identifier: LGPL-2.1-or-later

import globals from "globals";
import js from "@eslint/js";

export default [
    js.configs.recommended,
    {
        languageOptions: { globals: { ...globals.browser, cockpit: "readonly" } },
        rules: {
            eqeqeq: "error",
            "max-len": ["error", 120],
            "max-lines": ["error", 900],
            "max-lines-per-function": ["error", 100],
            "max-params": ["error", 6],
            "no-control-regex": "off",
            "no-var": "error",
            "prefer-const": "error",
            quotes: ["error", "double", { avoidEscape: true, allowTemplateLiterals: true }],
            semi: ["error", "always"],
        },
    },
];
