# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What podman needs in a host, and the tool that makes an image of the stand-in SGLang there.

layer_containers() {
    local root=$1
    local library=$root/usr/local/lib/testhosts
    mkdir -p "$library" "$root/etc/containers"
    gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$library/limits.so" "$HERE/files/limits.c" -ldl
    install -m 755 "$HERE/files/crun" "$library/crun"
    install -m 755 "$HERE/files/container-image" "$root/opt/simulator/container-image"
    # A host's root is an overlay already, on which the kernel lays no second one.
    install -m 644 /dev/stdin "$root/etc/containers/storage.conf" <<'CONF'
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
CONF
    install -m 644 /dev/stdin "$root/etc/containers/containers.conf" <<'CONF'
[engine]
runtime = "crun"
[engine.runtimes]
crun = ["/usr/local/lib/testhosts/crun"]
[network]
network_backend = "netavark"
CONF
}
