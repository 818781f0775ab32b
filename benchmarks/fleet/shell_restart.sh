#!/usr/bin/env bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What operators pipe into parallel ssh, with the number of steps in $steps.  It is the practice that the benchmark
# compares with, and no example.
# shellcheck disable=SC2046  # as it is typed
kill $(cat /run/sglang.pid)
sleep 5
free=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '$1 < 1024' | wc -l)
[ "$free" -eq 2 ] || exit 1
# shellcheck disable=SC2154
SGLANG_ENABLE_SPEC_V2=True nohup /opt/sglang/bin/python -m sglang.launch_server \
    --model-path /models/target --host 127.0.0.1 --port 30000 --tp-size 2 --max-running-requests 48 \
    --speculative-algorithm EAGLE3 --speculative-draft-model-path /models/draft-eagle3 \
    --speculative-num-steps "$steps" --speculative-eagle-topk 1 --speculative-num-draft-tokens $((steps + 1)) \
    </dev/null >/var/log/sglang.log 2>&1 &
echo $! >/run/sglang.pid
until curl -sf http://127.0.0.1:30000/health; do sleep 5; done
curl -sf http://127.0.0.1:30000/generate -H 'Content-Type: application/json' \
    -d '{"text": "The capital of France is", "sampling_params": {"max_new_tokens": 8}}'
