# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The Debian root that all hosts share, read-only. Nothing of this project is in it, so that it is
# built once and kept: what changes with the checkout goes into the layer above it (layer.sh).
# The folder's name holds a digest of this file: a changed recipe makes a new root.

ROOT_PACKAGES=systemd,systemd-sysv,dbus,libpam-systemd,openssh-server,python3,sudo,iproute2,psmisc,procps
# What runs servers in containers and in guests; catatonit is the init of podman's --init.
ROOT_PACKAGES+=,podman,crun,catatonit,netavark,lxc

# Units that a host without hardware, kernel or route to the outside only waits for.
ROOT_MASKED_UNITS=(
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
    e2scrub_reap.service
    console-getty.service getty.target
    dev-hugepages.mount dev-mqueue.mount
    sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount
    systemd-modules-load.service systemd-sysctl.service
    systemd-networkd.service systemd-resolved.service systemd-timesyncd.service
    systemd-udev-trigger.service systemd-udevd.service
    podman-auto-update.timer podman-auto-update.service podman-restart.service podman.service podman.socket
    lxc.service lxc-monitord.service lxc-net.service
)

root_path() {
    local digest
    digest=$(sha256sum "$HERE/lib/root.sh")
    echo "$CACHE/$SUITE-$(dpkg --print-architecture)-${digest:0:12}"
}

# Nothing where there is neither: mmdebstrap has a mirror of its own to fall back on.
root_mirror() {
    local own
    # shellcheck disable=SC2016  # apt expands it
    own=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        grep -v security | sort -u | head -n 1) || true
    echo "${TH_MIRROR:-$own}"
}

root_build() {
    local root
    root=$(root_path)
    [[ ! -d $root ]] || return 0
    mkdir -p "$CACHE"
    # Two checkouts may want the same root at the same time: the second one waits and finds it made.
    (
        flock 9
        [[ ! -d $root ]] || exit 0
        say "making the Debian root ($SUITE); this is done once and takes about half a minute"
        rm -rf "$root.new"
        root_bootstrap "$root.new"
        root_configure "$root.new"
        mv "$root.new" "$root"
    ) 9>"$CACHE/lock"
}

root_bootstrap() {
    local log=$1.log status=0 mirror
    mirror=$(root_mirror)
    mmdebstrap --quiet --mode=root --variant=minbase --include="$ROOT_PACKAGES" \
        --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$SUITE" "$1" ${mirror:+"$mirror"} >"$log" 2>&1 || status=$?
    if ((status)); then
        cat "$log" >&2
        rm -rf "$1"
        die "mmdebstrap failed with status $status (above); is the mirror ${mirror:-of Debian} reachable? TH_MIRROR names another"
    fi
    rm -f "$log"
}

root_configure() {
    local root=$1 unit user
    for unit in "${ROOT_MASKED_UNITS[@]}"; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    install -D -m 644 /dev/stdin "$root/etc/systemd/journald.conf.d/testhosts.conf" <<'CONF'
[Journal]
Storage=volatile
RuntimeMaxUse=16M
CONF
    install -D -m 600 /dev/stdin "$root/etc/ssh/sshd_config.d/testhosts.conf" <<'CONF'
PasswordAuthentication no
PermitRootLogin prohibit-password
UseDNS no
MaxStartups 100:30:200
CONF
    echo LANG=C.UTF-8 >"$root/etc/default/locale"
    # Identities belong to a host, not to the root that all share.
    rm -f "$root"/etc/ssh/ssh_host_*
    : >"$root/etc/machine-id"
    # sglang runs the server; alice is the other tenant of the machine.
    for user in sglang alice; do
        chroot "$root" useradd --create-home --shell /bin/bash "$user"
    done
}

root_clean() {
    local root
    for root in "$CACHE"/*/; do
        [[ -d $root ]] || continue
        if grep -qF "${root%/}" /proc/self/mounts; then
            say "kept ${root%/}: running hosts use it"
        else
            rm -rf "$root"
        fi
    done
}
