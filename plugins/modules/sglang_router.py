#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Takes an SGLang server out of its routers, and puts it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_router
short_description: Take an SGLang server out of its routers, and put it back
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Takes one worker out of one or several routers before its server is stopped, and puts it back with the attributes
    that it had. Works with sglang-router 0.3 and with the SGLang Model Gateway (smg). See the guide C(docs/routers.md).
  - What a router knew of the worker is written to the host before it is taken out (C(routers.json) beside the releases,
    readable by root only). So a run that is killed loses nothing, because the next one finds it there.
  - Requests that are under way go on. Neither router's list shows when they are done. Wait for the server's own
    requests after this module, with O(inferops.sglang.sglang_process#module:drain_timeout).
  - All routers are asked before any is changed. Where one of several fails afterwards, the others get the worker back.
  - Asks routers directly, whatever the proxy variables say.
options:
  url:
    description:
      - URLs of all routers that know the worker, such as V(http://10.0.0.2:8080).
      - Required, except with O(state=remembered) and O(state=forgotten).
    type: list
    elements: str
  worker_url:
    description:
      - The worker as the routers know it, such as V(http://10.0.0.5:30000).
      - V(HOST:PORT) is enough. Whether http or https is meant then follows from the current release of the O(instance).
      - Trailing slashes, default ports, upper case, http or https, and V(@RANK) at the end make no difference.
      - Required, except with O(state=forgotten).
    type: str
  state:
    description:
      - V(inspected) only tells what the routers say.
      - V(absent) takes the worker out and waits until it is in no list any more.
      - V(present) puts it back and waits until every router finds it healthy.
      - V(remembered) and V(forgotten) ask no router. They are for routers that are asked from another host than that
        of the server (O(remember=false)), and run on the server's host. V(remembered) keeps O(record) and returns all
        that is kept. V(forgotten) removes it.
    type: str
    choices: [inspected, absent, present, remembered, forgotten]
    default: inspected
  instance:
    description: Name of the server on its host, as in M(inferops.sglang.sglang_process).
    type: str
    default: main
  state_dir:
    description: Folder in which the releases of all servers of the host are kept. An absolute path.
    type: path
    default: /var/lib/sglang
  remember:
    description:
      - Whether this host is that of the server, and keeps the record of what is taken out.
      - With V(false), O(record) says what is known, and RV(record) what is to be kept.
    type: bool
    default: true
  record:
    description: RV(record) of an earlier call, with O(remember=false) or O(state=remembered).
    type: dict
    default: {}
  api_key:
    description: Key of the routers. Without it, none is sent.
    type: str
  worker_api_key:
    description:
      - Key of the server, which a router needs for its requests. Without it, the one of the current release, if there
        is one. Routers do not tell the key of a worker.
    type: str
  min_healthy:
    description:
      - So many healthy workers of the same model and type, this one not counted, must be left to each router. A number,
        or a percentage of all workers of that model and type, which is rounded up.
      - Otherwise nothing is touched. Where two hosts decide at the same moment, both see it and put their workers back.
      - V(0) lets the last one go. A worker that is not healthy may always go.
    type: str
    default: "1"
  register:
    description: Whether a worker that a router has never known is added with O(state=present), and no error with
      O(state=absent).
    type: bool
    default: false
  attributes:
    description:
      - What the worker is added with, such as C(worker_type), C(priority), C(cost), C(labels), C(model_id) or
        C(bootstrap_port), in the words of the router. It wins over what was recorded. Labels are combined.
    type: dict
    default: {}
  removal_timeout:
    description: Seconds until the worker must be in no list any more. Must be positive. smg keeps it for five seconds,
      or what C(drain_settle_secs) says.
    type: float
    default: 120
  settle:
    description: Seconds to wait after that, for a request that a router has already given to the worker and that has
      not arrived there.
    type: float
    default: 1
  ready_timeout:
    description: Seconds until every router must find the worker healthy. Must be positive. A router that does not
      answer meanwhile is asked again.
    type: float
    default: 120
  request_timeout:
    description: Seconds for one request to a router. Must be positive.
    type: float
    default: 10
  ca_path:
    description: File with the certificates of the authorities that the routers' certificates are checked with. Without
      it, those that the host trusts.
    type: path
  validate_certs:
    description: Whether the certificates of routers are checked, and their names.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Asks all routers, makes every check, and says what would be done.
  diff_mode:
    support: full
    description: Shows which routers have the worker, before and after.
  platform:
    support: full
    platforms: posix
    description: Needs no privileges but those to write O(state_dir).
seealso:
  - module: inferops.sglang.sglang_process
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: See what the routers say of this server
  inferops.sglang.sglang_router:
    url: [http://10.0.0.2:8080, http://10.0.0.3:8080]
    worker_url: 10.0.0.5:30000
  register: routers

- name: Take the server out, unless fewer than two others are left
  inferops.sglang.sglang_router:
    url: [http://10.0.0.2:8080, http://10.0.0.3:8080]
    worker_url: 10.0.0.5:30000
    state: absent
    min_healthy: 2

- name: Stop it when its requests are done
  inferops.sglang.sglang_process:
    state: stopped
    drain_timeout: 300

- name: Put it back as it was
  inferops.sglang.sglang_router:
    url: [http://10.0.0.2:8080, http://10.0.0.3:8080]
    worker_url: 10.0.0.5:30000
    state: present

- name: Add a server that no router knows yet
  inferops.sglang.sglang_router:
    url: [https://router.example.org]
    ca_path: /etc/ssl/certs/example.pem
    worker_url: http://10.0.0.5:30000
    state: present
    register: true
    attributes:
      priority: 10
      labels:
        tier: gold
"""

RETURN = r"""
worker_url:
  description: The worker's URL, with http or https as its server speaks it.
  returned: except with O(state=forgotten), unless the options are in error
  type: str
  sample: http://10.0.0.5:30000
routers:
  description: What each router says, after the module has acted. In check mode, as it is now.
  returned: with O(state=inspected), O(state=absent) and O(state=present), on success
  type: list
  elements: dict
  contains:
    url:
      description: URL of the router.
      type: str
      returned: always
      sample: http://10.0.0.2:8080
    registered:
      description: Whether the worker is in its list.
      type: bool
      returned: always
      sample: true
    healthy:
      description: Whether it gives the worker requests.
      type: bool
      returned: always
      sample: true
    draining:
      description: Whether it is being taken out.
      type: bool
      returned: always
      sample: false
    ids:
      description: IDs of the worker's entries. More than one where the router tells data-parallel ranks apart.
      type: list
      elements: str
      returned: always
      sample: ["2f3a0c3e-3a7b-4c3f-8c70-1b7d4c3a6e1f"]
    model:
      description: Model that the router has it for. Empty where it is not in the list, or where none is known.
      type: str
      returned: always
      sample: llama
    worker_type:
      description: V(regular), V(prefill) or V(decode). Empty where it is not in the list.
      type: str
      returned: always
      sample: regular
    attributes:
      description: What makes the same worker again. What the router has read from the server itself is left out.
      type: dict
      returned: always
      sample: {"worker_type": "regular", "priority": 50, "cost": 1.0}
    workers:
      description: How many workers the router has in all.
      type: int
      returned: always
      sample: 4
    healthy_others:
      description: How many other workers of the same model and type are healthy. 0 where this one is not in the list.
      type: int
      returned: always
      sample: 3
record:
  description: What was taken out and is not back, by the URL of the router. With O(state=inspected) and
    O(remember=false), what would have to be kept.
  returned: except with O(state=forgotten), on success
  type: dict
  sample: {"http://10.0.0.2:8080": {"worker_url": "http://10.0.0.5:30000", "attributes": {"priority": 50}}}
actions:
  description: What was done, or would be in check mode, a sentence for each router.
  returned: on success
  type: list
  elements: str
  sample: ["took http://10.0.0.5:30000 out of http://10.0.0.2:8080"]
seconds:
  description: How long all of it took.
  returned: on success
  type: float
  sample: 6.3
reason:
  description: >-
    V(router_unreachable), V(router_unauthorized), V(unknown_router), V(router_refused), V(unknown_worker),
    V(ambiguous_worker), V(too_few_workers), V(not_removed), V(not_added), V(not_in_router) or V(broken_record).
  returned: on failure, unless the options are in error
  type: str
  sample: too_few_workers
"""

import math
import re
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    STATE_DIR,
    InstanceError,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.client import RouterClient, open_router
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import parse_floor
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.looking import View
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.moving import (
    Insertion,
    Removal,
    Time,
    Wish,
    look,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import (
    GRPC,
    HTTP,
    HTTPS,
    Place,
    parse_place,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import (
    RecordFile,
    Records,
    from_dict,
    records_file,
    to_dict,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import tls_of_release


class UsageError(Exception):
    """Options that cannot be: the message names the option, the value and the remedy."""


def argument_spec() -> Dict[str, Dict[str, Any]]:
    """The options of the module."""
    return {
        "url": {"type": "list", "elements": "str"},
        "worker_url": {"type": "str"},
        "state": {
            "type": "str",
            "choices": ["inspected", "absent", "present", "remembered", "forgotten"],
            "default": "inspected",
        },
        "instance": {"type": "str", "default": "main"},
        "state_dir": {"type": "path", "default": STATE_DIR},
        "remember": {"type": "bool", "default": True},
        "record": {"type": "dict", "default": {}},
        "api_key": {"type": "str", "no_log": True},
        "worker_api_key": {"type": "str", "no_log": True},
        "min_healthy": {"type": "str", "default": "1"},
        "register": {"type": "bool", "default": False},
        "attributes": {"type": "dict", "default": {}},
        "removal_timeout": {"type": "float", "default": 120},
        "settle": {"type": "float", "default": 1},
        "ready_timeout": {"type": "float", "default": 120},
        "request_timeout": {"type": "float", "default": 10},
        "ca_path": {"type": "path"},
        "validate_certs": {"type": "bool", "default": True},
    }


class _Task:
    """One run of the module.  Raises UsageError and InstanceError where the options are in error."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        _check_options(self.params)
        paths = InstancePaths(self.params["instance"], self.params["state_dir"])
        # Beside the server, or where somebody keeps the record for it.
        self.on_its_host = self.params["remember"] or self.params["state"] in ("remembered", "forgotten")
        self.file: Optional[RecordFile] = RecordFile(records_file(paths)) if self.on_its_host else None
        self.release = self._current(paths) if self.on_its_host else None
        self.worker = self._worker() if self.params["worker_url"] is not None else None
        self.floor = _option("min_healthy", parse_floor, self.params["min_healthy"])
        self.time = Time(
            time.monotonic,
            time.sleep,
            *(self.params[name] for name in ("removal_timeout", "settle", "ready_timeout")),
        )
        self.began = time.monotonic()
        self.changed = False
        self.actions: List[str] = []

    def _current(self, paths: InstancePaths) -> Optional[Release]:
        try:
            return read_current(paths)
        except ReleaseError as error:
            self.module.warn("%s What it says of the server's key and certificate is not known." % error)
            return None

    def _worker(self) -> Place:
        place = _option("worker_url", parse_place, self.params["worker_url"])
        if place.scheme:
            return place
        secure = self.release is not None and tls_of_release(self.release) is not None
        return place.speaking(HTTPS if secure else HTTP)

    def _key(self) -> Optional[str]:
        if self.params["worker_api_key"]:
            return str(self.params["worker_api_key"])
        return self.release.api_key() if self.release is not None else None

    def _routers(self) -> List[RouterClient]:
        params = self.params
        return [
            open_router(
                place, params["api_key"], params["request_timeout"], params["ca_path"] or "", params["validate_certs"]
            )
            for place in _router_places(params["url"])
        ]

    # -- the states

    def run(self) -> Dict[str, Any]:
        """Bring it about.  Raises RouterError and OSError."""
        state = self.params["state"]
        if state == "forgotten":
            return self._forget()
        if state == "remembered":
            return self._remember()
        worker = self.worker
        if worker is None:  # required_if has seen to it
            raise UsageError("worker_url: it is missing.")
        routers = self._routers()
        wish = Wish(self.params["attributes"], self.params["register"], self._key())
        if state == "present" and not self.module.check_mode:
            before, views = self._put_in(routers, worker, wish)
        else:
            before = look(routers, worker)
            views = before
            if state == "absent":
                after = self._take_out(routers, worker, before, wish)
                # No new look: a router that goes down now changes nothing of what was done.
                views = [after.get(view.router, view) for view in before]
            elif state == "present":
                self._would_put_in(routers, worker, before, wish)
        result = {
            "worker_url": worker.url,
            "routers": [view.to_dict() for view in views],
            "record": to_dict(self._kept_after(views)),
        }
        if self.module._diff:
            result["diff"] = {"before": _shown(before), "after": self._after(state, views)}
        return result

    def _kept(self) -> Records:
        return self.file.read() if self.file is not None else self._given()

    def _given(self) -> Records:
        return _option("record", from_dict, self.params["record"])

    def _kept_after(self, views: Sequence[View]) -> Records:
        if self.file is not None:
            return self.file.read()
        if self.params["state"] == "inspected":
            return {**self._given(), **{view.router: view.record() for view in views if view.ours}}
        return self._given() if self.params["state"] == "absent" else {}

    def _take_out(
        self, routers: Sequence[RouterClient], worker: Place, views: Sequence[View], wish: Wish
    ) -> Dict[str, View]:
        """Take it out; what each router said when it had let it go."""
        removal = Removal(routers, worker, self.floor, wish, self.time, self._returned)
        kept = self._kept()
        leaving = removal.plan(views, kept)
        if self.file is None and not self.module.check_mode:
            forgotten = sorted(set(leaving) - set(kept))
            if forgotten:
                raise UsageError(
                    "record: it says nothing of %s, and with remember=false nobody else keeps it: give the record of "
                    "state=inspected, after state=remembered has kept it on the server's host." % ", ".join(forgotten)
                )
        self.changed = bool(leaving)
        if self.module.check_mode:
            self.actions = ["would take %s out of %s" % (worker.url, router) for router in leaving]
            return {}
        if self.file is not None:
            self.file.add(leaving)
        self.actions = ["took %s out of %s" % (worker.url, router) for router in removal.run()]
        return removal.after

    def _would_put_in(self, routers: Sequence[RouterClient], worker: Place, views: Sequence[View], wish: Wish) -> None:
        missing = Insertion(routers, worker, self._kept(), wish, self.time).plan(views)
        self.changed = bool(missing)
        self.actions = ["would put %s into %s" % (worker.url, router) for router in missing]

    def _put_in(self, routers: Sequence[RouterClient], worker: Place, wish: Wish) -> Tuple[List[View], List[View]]:
        """Put it in; what the routers said before and after.  One that is down keeps it from no other."""
        insertion = Insertion(routers, worker, self._kept(), wish, self.time, self._returned)
        try:
            insertion.run()
        finally:
            self.changed = bool(insertion.added)
            self.actions = ["put %s into %s" % (worker.url, router) for router in sorted(insertion.added)]
        before = [insertion.before[router.url] for router in routers]
        return before, [insertion.after[router.url] for router in routers]

    def _returned(self, router: str) -> None:
        if self.file is not None:
            self.file.drop(router)

    def _remember(self) -> Dict[str, Any]:
        given = self._given()
        kept = self._kept()
        own = self.release.api_key() if self.release is not None else None
        # What is kept now is put back later, by when another release may be the current one.
        if not given and self.release is not None and (self.params["worker_api_key"] or None) != own:
            raise RouterError(
                "router_refused",
                "The current release of %s has another key than worker_api_key (sglang_api_key), and with a router "
                "that is asked from another host it cannot be handed on. Put the worker into its routers by hand, or "
                "have them asked from this host (sglang_router_delegate_to empty)." % self.params["instance"],
            )
        after = {**kept, **given}
        self.changed = after != kept
        self.actions = ["kept what %s has" % router for router in sorted(given) if kept.get(router) != given[router]]
        if self.changed and not self.module.check_mode and self.file is not None:
            self.file.write(after)
        result: Dict[str, Any] = {"worker_url": self.worker.url if self.worker else "", "record": to_dict(after)}
        if self.module._diff:
            result["diff"] = {"before": to_dict(kept), "after": to_dict(after)}
        return result

    def _forget(self) -> Dict[str, Any]:
        kept = self._kept()
        self.changed = bool(kept)
        self.actions = ["forgot what %s had" % router for router in sorted(kept)]
        if self.changed and not self.module.check_mode and self.file is not None:
            self.file.write({})
        return {"diff": {"before": to_dict(kept), "after": {}}} if self.module._diff else {}

    # -- results

    def _after(self, state: str, views: Sequence[View]) -> Dict[str, str]:
        shown = _shown(views)
        if self.module.check_mode and state in ("absent", "present") and self.changed:
            return dict.fromkeys(shown, "out" if state == "absent" else "in")
        return shown

    def common(self) -> Dict[str, Any]:
        """What is returned in any case."""
        return {
            "changed": self.changed,
            "actions": self.actions,
            "seconds": round(time.monotonic() - self.began, 3),
        }


def _shown(views: Sequence[View]) -> Dict[str, str]:
    return {view.router: "in" if view.serving else "not healthy" if view.ours else "out" for view in views}


def _option(name: str, parse: Any, value: Any) -> Any:
    """The value of an option as it is read.  Raises UsageError."""
    try:
        return parse(value)
    except ValueError as error:
        raise UsageError("%s: %s." % (name, error)) from None


def _router_places(urls: Sequence[str]) -> List[Place]:
    places = [_option("url", parse_place, url) for url in urls]
    for place, url in zip(places, urls):
        if place.scheme == GRPC or place.rank is not None:
            raise UsageError("url: %r is not that of a router: give http://HOST:PORT or https://HOST:PORT." % url)
    places = [place if place.scheme else place.speaking(HTTP) for place in places]
    twice = sorted({place.url for place in places if places.count(place) > 1})
    if twice:
        raise UsageError("url: %s is there twice: give each router once." % ", ".join(twice))
    return places


def _check_options(params: Dict[str, Any]) -> None:
    """Raises UsageError."""
    if params["url"] is not None and not params["url"]:
        raise UsageError("url: an empty list names no router: give one.")
    for name in ("removal_timeout", "ready_timeout", "request_timeout"):
        if not (params[name] > 0 and math.isfinite(params[name])):
            raise UsageError("%s: %r is not a positive number of seconds: give more than 0." % (name, params[name]))
    if not (params["settle"] >= 0 and math.isfinite(params["settle"])):
        raise UsageError("settle: %r is not a number of seconds: give 0 or more." % params["settle"])
    for name in ("api_key", "worker_api_key"):
        if params[name] is not None and not re.fullmatch(r"[\x21-\x7e]*", params[name]):
            raise UsageError("%s: it holds characters that a HTTP header cannot carry: give printable ASCII." % name)
    for name in ("url", "worker_url", "api_key"):
        if name in params["attributes"]:
            raise UsageError("attributes: %s is not one of them: give it in an option of its own." % name)
    if not isinstance(params["attributes"].get("labels", {}), dict):
        raise UsageError("attributes: labels is no dict: give names and values.")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[
            *(("state", state, ("url", "worker_url")) for state in ("inspected", "absent", "present")),
            ("state", "remembered", ("worker_url",)),
        ],
        supports_check_mode=True,
    )
    task: Optional[_Task] = None
    try:
        task = _Task(module)
        result = task.run()
    except (UsageError, InstanceError) as error:
        module.fail_json(msg=str(error))
    except RouterError as error:
        done = task.common() if task is not None else {}
        module.fail_json(msg=str(error), reason=error.reason, **done)
    except OSError as error:
        name = error.filename or "A file"
        module.fail_json(
            msg="%s cannot be used: %s. Run as root, or choose another state_dir." % (name, error.strerror)
        )
    module.exit_json(**task.common(), **result)


if __name__ == "__main__":
    main()
