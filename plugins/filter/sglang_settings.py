# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible filter: merges a named profile with the settings of the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: sglang_settings
short_description: Merge a profile of SGLang settings with those of the inventory
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Takes the chosen profile as the base and fills what it leaves open from the settings.
  - A setting that both give with different values is an error, so that the name of a profile always says what ran.
  - A profile whose algorithm is V(none) wins over all speculative settings. M(inferops.sglang.sglang_preflight) drops
    them and reports that.
  - The profiles V(baseline) (no speculation) and V(eagle3) (the algorithm C(EAGLE3)) always exist, and can be defined
    anew.
  - A profile that O(profiles) does not have is looked for in the sweep in O(sweep_dir). A configuration that was
    measured there has its name, V(adaptive) is the adaptive configuration that was computed, and V(best) is the
    configuration for the expected load.
positional: profile, profiles, sweep_dir, sweep_concurrency
options:
  _input:
    description:
      - The settings of the inventory. C(speculative) is a dictionary of SGLang's speculative options by their own names
        without C(speculative_), such as C(algorithm) and C(num_steps). Besides there are C(max_running_requests),
        C(mem_fraction_static), C(extra_args) and C(environment).
      - An empty string or null means that a setting was not given.
    type: dict
    required: true
  profile:
    description: Name of the profile. Empty for none.
    type: str
    default: ''
  profiles:
    description:
      - Profiles by name, each a dictionary like the input. The known speculative settings may also stand at its top.
    type: dict
    default: {}
  sweep_dir:
    description: Folder of a sweep on the controller. Empty for none.
    type: str
    default: ''
  sweep_concurrency:
    description:
      - How many requests a server has at a time, for the profile V(best). Empty for what the sweep was told.
    type: raw
    default: ''
"""

EXAMPLES = r"""
- name: Show what the profile eagle3 makes of the settings
  ansible.builtin.debug:
    msg: "{{ settings | inferops.sglang.sglang_settings('eagle3', profiles) }}"
  vars:
    settings:
      speculative:
        draft_model_path: /models/draft-eagle3
      max_running_requests: 64
    profiles:
      eagle3:
        algorithm: EAGLE3
        num_steps: 3
        eagle_topk: 1
        num_draft_tokens: 4
        environment:
          NCCL_NVLS_ENABLE: 1
"""

RETURN = r"""
_value:
  description:
    - The merged settings with the keys C(profile), C(speculative), C(max_running_requests), C(mem_fraction_static),
      C(extra_args) and C(environment). C(speculative) has only what was given, and the values of C(environment) are
      strings.
    - For a profile of a sweep also C(measured), what M(inferops.sglang.sglang_preflight) compares with the host.
  type: dict
"""

from typing import Any, Callable, Dict, Mapping, Optional

from ansible.errors import AnsibleFilterError

from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError, merge_settings
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import read_profiles


def sglang_settings(
    settings: Any,
    profile: Optional[str] = "",
    profiles: Optional[Mapping[str, Any]] = None,
    sweep_dir: Optional[str] = "",
    sweep_concurrency: Any = "",
) -> Dict[str, Any]:
    """Merge, with errors as Ansible reports them."""
    if not isinstance(settings, Mapping):
        raise AnsibleFilterError(f"sglang_settings needs a dictionary of settings, and got {settings!r}.")
    try:
        sweep = (lambda: read_profiles(str(sweep_dir))) if sweep_dir else None
        return merge_settings(settings, profile, profiles, sweep, sweep_concurrency)
    except ProfileError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"sglang_settings": sglang_settings}
