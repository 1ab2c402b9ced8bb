# Installs Debian packages without letting their daemons start, now or with the next boot: the tests
# run private servers on ports of their own, and the default ports may belong to somebody else.
#
# Called with POLICY CLUSTERS [PACKAGE…]. Without packages it only puts back what an earlier run
# could not because it was killed.
set -eu

policy=$1 # of daemons that packages may start: /usr/sbin/policy-rc.d
policy_before=$policy.before-lockstep
mark='written by lockstep: no daemons while its test packages are installed'
clusters=$2 # of PostgreSQL that its package makes: /etc/postgresql-common/createcluster.conf
clusters_before=$clusters.before-lockstep
shift 2

# One installation at a time. What it has started keeps the lock as well: apt goes on when this is killed.
exec 9<"${policy%/*}"
if ! flock --nonblock 9; then
    echo 'another installation is under way: waiting until it has ended'
    flock --wait 1800 9
fi

state() {
    dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true
}

# Packages enable their services for the next boot. On those that were not installed before, nobody
# relies.
disable_new() {
    for package in $(sed -n 's/^# new: //p' "$policy"); do
        case $(state "$package") in
        '' | not-installed | config-files) continue ;;
        esac
        case $package in
        redis-server | pgbouncer) service=$package ;;
        mariadb-server | etcd-server) service=${package%-server} ;;
        *) continue ;;
        esac
        if [ -d /run/systemd/system ]; then
            systemctl disable --quiet "$service" || true
        elif command -v update-rc.d >/dev/null; then
            update-rc.d "$service" disable || true
        fi
    done
}

put_back() {
    if [ -e "$policy" ] && grep -qF "$mark" "$policy"; then
        # What was unpacked and no more would start its daemon whenever it is configured.
        DEBIAN_FRONTEND=noninteractive dpkg --configure -a || true
        disable_new
        if [ ! -e "$policy_before" ]; then
            rm -f "$policy"
        fi
    fi
    if [ -e "$policy_before" ]; then
        mv -f "$policy_before" "$policy"
    fi
    if [ -e "$clusters_before" ]; then
        mv -f "$clusters_before" "$clusters"
    fi
}
put_back
if [ $# -eq 0 ]; then
    exit
fi
trap put_back EXIT
trap 'exit 130' INT TERM HUP

new=
for package in "$@"; do
    if [ "$(state "$package")" != installed ]; then
        new="$new $package"
    fi
done
if [ -e "$policy" ]; then
    mv "$policy" "$policy_before"
fi
# What is new stands there for a later run, should this one be killed.
printf '#!/bin/sh\n# %s\n# new: %s\nexit 101\n' "$mark" "$new" >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
install() {
    # MariaDB and MySQL exclude each other, and whoever has the other one may be using it.
    apt-get install -y -qq --no-install-recommends --no-remove "$@"
}
# Package lists are only fetched if those at hand are missing or name files that are gone.
install_with_fresh_lists_if_needed() {
    if apt-get install -s -qq --no-install-recommends "$@" >/dev/null 2>&1 && install "$@"; then
        return
    fi
    apt-get update -qq
    install "$@"
}

case " $* " in
*' postgresql '*)
    # The package would create a cluster that starts on the default port with the next boot.
    install_with_fresh_lists_if_needed postgresql-common
    if [ -e "$clusters" ]; then
        cp -p "$clusters" "$clusters_before"
        sed -i '/^[#[:space:]]*create_main_cluster/d' "$clusters"
        echo 'create_main_cluster = false' >>"$clusters"
    fi
    ;;
esac
install_with_fresh_lists_if_needed "$@"
