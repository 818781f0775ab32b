# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module of this collection within another one, in the same process.

Each start of a module costs its host the start of Python and the imports, and its controller a call: more than most
modules take for what they do.
"""

from __future__ import annotations

import copy
import traceback
from typing import Any, Callable, Dict, Mapping, NoReturn, Type

from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule, remove_values

# What a module does, given the class that makes it out of its options.
Main = Callable[[Type[AnsibleModule]], None]


class _Ended(BaseException):
    """The module has ended.  Nothing that a module does about its own errors may catch it."""

    def __init__(self, result: Dict[str, Any]) -> None:
        super().__init__()
        self.result = result


def run_module(name: str, main: Main, arguments: Mapping[str, Any], check_mode: bool) -> Dict[str, Any]:
    """The result of a module; failed is set in it where it failed.

    What the module warns of is warned of by the module around it.  The options of the result are not in it.
    """
    try:
        main(_module_class(name, arguments, check_mode))
    except _Ended as end:
        return end.result
    except Exception as error:  # whatever it was, what was done before must be told
        return {
            "failed": True,
            "msg": "%s ended by an error in itself: %s: %s" % (name, type(error).__name__, error),
            "exception": traceback.format_exc(),
        }
    return {"failed": True, "msg": "%s ended without a result." % name}


def _module_class(name: str, arguments: Mapping[str, Any], check_mode: bool) -> Type[AnsibleModule]:
    # Ansible's own words to a module, such as how it logs, are those to the module around it.
    internal = {key: value for key, value in basic._load_params().items() if key.startswith("_ansible_")}
    internal.update(_ansible_check_mode=check_mode, _ansible_module_name=name)

    class StepModule(AnsibleModule):  # type: ignore[misc]
        """A module with given options, which raises its result."""

        def _load_params(self) -> None:
            # They are converted in place.
            self.params = {**copy.deepcopy(dict(arguments)), **internal}

        def exit_json(self, **kwargs: Any) -> NoReturn:
            self.do_cleanup_files()
            raise _Ended(remove_values(kwargs, self.no_log_values))

        def fail_json(self, msg: str, **kwargs: Any) -> NoReturn:
            self.exit_json(failed=True, msg=str(msg), **kwargs)

    return StepModule
