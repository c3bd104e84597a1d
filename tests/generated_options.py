"""The options of a job for the pages, from the table of them.

``python tests/generated_options.py`` (or ``make generate``) writes them; ``docs/test_generated_options.py`` compares.
"""

import json

from doc_pages import ROOT
from rekindle.contract.job_options import job_options

OPTIONS = ROOT / "service" / "rekindle_service" / "web" / "static" / "shared" / "job-options.js"


def text() -> str:
    """The module with every option of a job, from the table of them."""
    table = [
        {
            "path": each.path,
            "label": each.label,
            "widget": each.widget,
            "flag": each.flag,
            "default": each.default,
            **({"onlyOurs": True} if each.only_ours else {}),
            **({"unit": "s"} if each.metavar == "SECONDS" else {}),
        }
        for each in job_options()
    ]
    rows = "".join(f"  {json.dumps(each, ensure_ascii=False)},\n" for each in table)
    fields = "path: string, label: string, widget: string, flag: string, default: unknown"
    return f"""/**
 * The options of a job, by `make generate` from contract/job_options.py: do not edit.
 *
 * @typedef {{{{{fields}, onlyOurs?: boolean, unit?: string}}}} JobOption
 */
/** @type {{JobOption[]}} */
export const JOB_OPTIONS = [
{rows}];
"""


if __name__ == "__main__":
    OPTIONS.write_text(text())
