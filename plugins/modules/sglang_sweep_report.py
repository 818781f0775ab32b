#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_sweep_report
short_description: Make the report of a sweep
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Analyses what a sweep has measured, and writes it as C(results.json), C(results.csv) and one HTML page with plots,
    C(report.html), which needs nothing else. The page says which configuration is the one for which concurrency.
  - A sweep that is not at its end, configurations that failed, and files that cannot be read make no difference but
    that the report says so.
  - The same measurements give the same files, byte by byte, with the same version of matplotlib.
  - Prints the most important sentences of the analysis.
  - Runs on the controller only, without a connection to any host.
requirements:
  - matplotlib 3.6 or later on the controller, unless O(html=false)
options:
  dir:
    description:
      - The folder of a sweep on the controller.
      - Exactly one of O(dir) and O(results) is required.
    type: path
  results:
    description: A C(results.json) on the controller, of which the analysis and the other files are made anew.
    type: path
  dest:
    description:
      - The folder on the controller that gets the files. It must exist. Default is O(dir), or the folder of O(results).
      - Each file is replaced whole, or not at all. A new one can be read by its owner only, one that was there before
        keeps its mode.
    type: path
  title:
    description: The heading of the page. Default is the name of the sweep.
    type: str
    default: ""
  html:
    description:
      - Whether to make the page. If not, matplotlib is not needed.
      - Where it is missing, the other two files are written, and the task fails.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Makes everything, and writes no file.
  diff_mode:
    support: none
    description: The files are large, and a difference of them would tell nobody anything.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.sglang_benchmark
"""

EXAMPLES = r"""
- name: Make the report of a sweep in its folder
  inferops.sglang.sglang_sweep_report:
    dir: sweeps/llama-70b
  run_once: true

- name: Put a copy of it where others can read it
  inferops.sglang.sglang_sweep_report:
    results: sweeps/llama-70b/results.json
    dest: /srv/www/sweeps
    title: Llama 3.3 70B with EAGLE-3 on eight H200
  run_once: true
"""

RETURN = r"""
files:
  description: The files that were written, or would be in check mode.
  returned: always
  type: dict
  contains:
    json:
      description: Everything, the analysis included.
      returned: always
      type: str
      sample: /home/ops/sweeps/llama-70b/results.json
    csv:
      description: A line for each repeat of each point.
      returned: always
      type: str
      sample: /home/ops/sweeps/llama-70b/results.csv
    html:
      description: The page.
      returned: when O(html=true) and matplotlib is there
      type: str
      sample: /home/ops/sweeps/llama-70b/report.html
summary:
  description: What matters most, a sentence each.
  returned: always
  type: list
  elements: str
  sample: ["Use eagle3-steps3 up to 6 requests at a time, and no speculation above."]
decision:
  description: Which configuration for which concurrency, from the lowest one on. Empty where nothing was measured.
  returned: always
  type: list
  elements: dict
  contains:
    from:
      description: The first concurrency of the range.
      returned: always
      type: int
      sample: 1
    to:
      description: The last one. Null for all that are above.
      returned: always
      type: int
      sample: 6
    configuration:
      description: The configuration, with its host where several hosts have one of that name.
      returned: always
      type: str
      sample: eagle3-steps3
    host:
      description: The host that it was measured on.
      returned: always
      type: str
      sample: gpu-a
    num_steps:
      description: Its number of steps, 0 without speculation. Null where it is not known.
      returned: always
      type: int
      sample: 3
    measured:
      description: The measured concurrencies in the range.
      returned: always
      type: list
      elements: int
      sample: [1, 2, 4]
    boundary:
      description: Where it and the configuration of the range before are equally fast. Null where that is not known.
      returned: always
      type: float
      sample: 6.4
    ratio:
      description: Its smallest throughput in the range, divided by that of the baseline. Null where it is not known.
      returned: always
      type: float
      sample: 1.31
    confirmed:
      description: Whether it is shown to be the best one, and does not just stand there for want of proof.
      returned: always
      type: bool
      sample: true
    reason:
      description: Why, in words.
      returned: always
      type: str
      sample: It is the fastest at 1, 2 and 4.
crossovers:
  description: Where configurations are as fast as the baseline.
  returned: always
  type: list
  elements: dict
  contains:
    configuration:
      description: The configuration.
      returned: always
      type: str
      sample: eagle3-steps3
    host:
      description: The host that it was measured on.
      returned: always
      type: str
      sample: gpu-a
    state:
      description: V(crosses), V(below_lowest), V(above_highest), V(no_difference) or V(unknown).
      returned: always
      type: str
      sample: crosses
    between:
      description: The measured concurrencies that the first crossing lies between. Null for an end that is open.
      returned: always
      type: list
      elements: float
      sample: [4, 8]
    estimate:
      description: The concurrency of the first crossing. Null where there is none.
      returned: always
      type: float
      sample: 6.4
    interval:
      description: The 95 % interval of the estimate. Null where there is none.
      returned: always
      type: list
      elements: float
      sample: [5.1, 7.9]
    crossings:
      description: All crossings, each with C(to), C(between), C(estimate) and C(interval).
      returned: always
      type: list
      elements: dict
      sample: [{to: slower, between: [4, 8], estimate: 6.4, interval: [5.1, 7.9]}]
    reason:
      description: The same in words.
      returned: always
      type: str
      sample: It is faster up to 4, and slower from 8 on.
adaptive:
  description: What SGLang's C(--speculative-adaptive-config) should hold.
  returned: always
  type: dict
  contains:
    config:
      description: The content of the file. Null where it could not be computed.
      returned: always
      type: dict
      sample: {"1": {candidate_steps: [3]}, "8": {candidate_steps: [0]}}
    num_steps:
      description: The number of steps to start with.
      returned: always
      type: int
      sample: 3
    eagle_topk:
      description: The top-k, which is 1.
      returned: always
      type: int
      sample: 1
    num_draft_tokens:
      description: The draft tokens that belong to it.
      returned: always
      type: int
      sample: 4
    max_running_requests:
      description: What the server needs, so that all batch sizes can occur.
      returned: always
      type: int
      sample: 250
    configurations:
      description: The configurations that it was computed from.
      returned: always
      type: list
      elements: str
      sample: [baseline, eagle3-steps1, eagle3-steps3]
    base:
      description: The configuration whose other settings it goes with. Null where there is none.
      returned: always
      type: str
      sample: eagle3-steps3
    reason:
      description: Why it is so, or why there is none.
      returned: always
      type: str
      sample: Each size has the steps that were the fastest there.
conditions:
  description: What is not the same for all configurations, or not as a comparison needs it.
  returned: always
  type: list
  elements: str
  sample: []
left_out:
  description: What could not be read, or was left out of the report.
  returned: always
  type: list
  elements: str
  sample: ["points/3f9c1e27ab54/8.json was left out: it is no JSON, or torn (Unterminated string)."]
"""
