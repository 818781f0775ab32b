# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The life of one host. $HOST is its number; everything that belongs to it lies in $SET/host/$HOST,
# and every process of it in one control group, so that a power cut reaches all of them.

HOST_START_SECONDS=60

# Capabilities that would let a host change the machine under it.
HOST_DROPPED_CAPABILITIES=-sys_rawio,-sys_module,-sys_time,-syslog,-mac_admin,-mac_override,-bpf,-perfmon,-wake_alarm,-block_suspend,-checkpoint_restore

host_dir() { echo "$SET/host/$HOST"; }
host_name() { echo "gpu-$HOST"; }
host_cgroup() { echo "$(set_cgroup)/$(host_name)"; }

host_named() {
    set_required
    HOST=${1#gpu-}
    [[ $HOST =~ ^[1-9][0-9]*$ && -d $(host_dir) ]] || die "no host '$1' in the set '$NAME'; there are: $(set_hosts | sed 's/^/gpu-/' | tr '\n' ' ')"
}

# ---- making and removing --------------------------------------------------------------------------------------------

host_create() {
    local dir root
    dir=$(host_dir)
    root=$dir/root
    mkdir -p "$dir/upper" "$dir/work" "$root" "$(host_cgroup)"
    mount -t overlay "testhosts-$(host_name)" \
        -o "lowerdir=$SET/layer:$(root_path),upperdir=$dir/upper,workdir=$dir/work" "$root"
    host_identity "$root"
    network_attach "$HOST"
}

host_identity() {
    local root=$1
    host_name >"$root/etc/hostname"
    cp "$SET/hosts" "$root/etc/hosts"
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    ssh-keygen -q -t ed25519 -N '' -C "$(host_name)" -f "$root/etc/ssh/ssh_host_ed25519_key"
    echo "$(network_address "$HOST") $(cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub")" >>"$SET/known_hosts"
    install -d -m 700 "$root/root/.ssh"
    install -m 600 "$SET/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
    # The seed gives each host GPUs with UUIDs of their own.
    printf 'FAKEGPU_COUNT=%s\nFAKEGPU_HOST_SEED=%s\n' "$GPUS" "$HOST" >"$root/etc/fakegpu"
}

host_destroy() {
    local dir
    dir=$(host_dir)
    ! mountpoint -q "$dir/root" || umount "$dir/root" || umount -l "$dir/root"
}

# ---- power ----------------------------------------------------------------------------------------------------------

# The loop is the host's firmware: when PID 1 ends by reboot(2), the kernel reports SIGHUP, and it boots again;
# on power-off or halt it reports SIGINT, and the machine stays off.
host_power_on() {
    local dir
    dir=$(host_dir)
    rm -f "$dir/pid"
    (
        echo "$BASHPID" >"$(host_cgroup)/cgroup.procs"
        # shellcheck disable=SC2016  # expanded by the inner shell
        exec setsid bash -c '
            reboot_status=$((128 + 1))
            while :; do
                nsenter --net="$1" unshare --mount --uts --ipc --pid --cgroup --fork --kill-child \
                    setpriv --bounding-set "$2" "${@:3}"
                [ $? -eq "$reboot_status" ] || break
            done' "testhosts-firmware" \
            "/run/netns/$(network_of "$HOST")" "$HOST_DROPPED_CAPABILITIES" \
            "$HERE/lib/boot" "$dir" "$(host_name)" "$GPUS" "$INIT"
    ) >"$dir/console.log" 2>&1 </dev/null 9>&- &
}

# The PID of the host's first process in the machine's own numbering; the group proves that it is still ours.
host_pid() {
    local pid
    pid=$(cat "$(host_dir)/pid" 2>/dev/null) || return 1
    grep -qs "/testhosts-$NAME/$(host_name)\(/\|\$\)" "/proc/$pid/cgroup" || return 1
    echo "$pid"
}

host_has_processes() { grep -qs 'populated 1' "$(host_cgroup)/cgroup.events"; }

host_exec() {
    local pid
    [[ $# -gt 0 ]] || die "exec: no command given"
    pid=$(host_pid) || die "$(host_name) is off"
    exec nsenter --target "$pid" --all --root --wdns=/ "$@"
}

host_state() {
    local pid
    pid=$(host_pid) || { echo off; return; }
    if grep -q 'frozen 1' "$(host_cgroup)/cgroup.events"; then
        echo frozen
    elif [[ -e /proc/$pid/root/etc/testhosts-light ]]; then
        # What sshd writes when it listens.
        if [[ -e /proc/$pid/root/run/sshd.pid ]]; then echo running; else echo starting; fi
    else
        timeout 5 nsenter --target "$pid" --all --root --wdns=/ systemctl is-system-running 2>/dev/null || true
    fi
}

host_wait_ready() {
    local deadline=$((SECONDS + HOST_START_SECONDS)) state
    while ((SECONDS < deadline)); do
        state=$(host_state)
        case $state in
            running) return 0 ;;
            degraded) break ;;
        esac
        sleep 0.1
    done
    say "$(host_name) did not come up (${state:-off}); its console:"
    cat "$(host_dir)/console.log" >&2
    if [[ $state == degraded ]]; then
        (host_exec systemctl --no-pager --no-legend --failed) >&2 || true
        (host_exec journalctl --no-pager --priority=warning --lines=40) >&2 || true
    fi
    return 1
}

# ---- commands -------------------------------------------------------------------------------------------------------

host_kill() {
    local tries
    echo 1 >"$(host_cgroup)/cgroup.kill"
    for ((tries = 0; tries < 200; tries++)); do
        host_has_processes || { rm -f "$(host_dir)/pid"; return 0; }
        sleep 0.05
    done
    die "$(host_name): processes survived SIGKILL for 10 s: $(host_survivors)"
}

host_survivors() { find "$(host_cgroup)" -name cgroup.procs -exec cat {} + | tr '\n' ' '; }

host_start() {
    ! host_has_processes || die "$(host_name) is already on"
    host_power_on
    host_wait_ready
}

host_cut() { ip -n "$(network_controller)" link set "port$HOST" down; }
host_heal() { ip -n "$(network_controller)" link set "port$HOST" up; }
host_freeze() { echo 1 >"$(host_cgroup)/cgroup.freeze"; }
host_thaw() { echo 0 >"$(host_cgroup)/cgroup.freeze"; }
