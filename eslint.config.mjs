// Rules for the scripts of the dashboard: `npm install && npm run lint`.

import js from "@eslint/js";
import globals from "globals";

const MARKUP = "/^(innerHTML|outerHTML|insertAdjacentHTML|write|writeln)$/";

export default [
  js.configs.recommended,
  {
    files: ["**/*.js"],
    languageOptions: { sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "max-len": ["error", { code: 100 }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-syntax": [
        "error",
        {
          selector: `MemberExpression[property.name=${MARKUP}]`,
          message: "Names come from clients of the service: set text with textContent.",
        },
      ],
      "no-shadow": "error",
      "no-use-before-define": ["error", { functions: false }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
