# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that ask a router without a pause, and forgive nothing."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse

TOKENS = 10
# Seconds without a byte that count as a failure.
TIMEOUT = 60


def ask(url, tokens, stream):
    """One generation through a router: why it failed, "" where it is complete."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=TIMEOUT)
    body = {"text": "x", "sampling_params": {"max_new_tokens": tokens}, "stream": stream}
    try:
        connection.request("POST", "/generate", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
    if answer.status != 200:
        return f"{answer.status}: {text[:300]}"
    if stream:
        events = [line[len("data: ") :] for line in text.splitlines() if line.startswith("data: ")]
        if events[-1:] != ["[DONE]"]:
            return f"the stream broke off: {text[-300:]}"
        text = events[-2]
    words = len(json.loads(text)["text"].split())
    return "" if words == tokens else f"{words} of {tokens} tokens came"


class Load:
    """Four clients for each router, two of them with streams; failures are what went wrong, in their words."""

    def __init__(self, urls):
        self.failures = []
        self.answered = dict.fromkeys(urls, 0)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._client, args=(url, stream))
            for url in urls
            for stream in (False, True, False, True)
        ]
        self._long = []

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.stop()

    def start(self):
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def long(self, url, tokens):
        """One long stream, beside the others."""
        thread = threading.Thread(target=self._ask, args=(url, tokens, True))
        thread.start()
        self._long.append(thread)

    def wait_for_long(self):
        """Until the long streams are over."""
        for thread in self._long:
            thread.join()

    def stop(self):
        """No new requests; waits for those that are under way."""
        self._stop.set()
        for thread in (*self._threads, *self._long):
            if thread.ident is not None:
                thread.join()

    def _client(self, url, stream):
        while not self._stop.is_set():
            self._ask(url, TOKENS, stream)

    def _ask(self, url, tokens, stream):
        failure = ask(url, tokens, stream)
        with self._lock:
            if failure:
                self.failures.append(failure)
                if len(self.failures) > 20:  # enough is known
                    self._stop.set()
            else:
                self.answered[url] += 1
