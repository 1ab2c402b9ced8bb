# Installs the given Debian packages without letting their daemons start: the tests run private
# servers on ports of their own, and the default ports may belong to somebody else.
set -eu

policy=/usr/sbin/policy-rc.d
policy_before=$policy.before-lockstep
mark='written by lockstep: no daemons while its test packages are installed'
clusters=/etc/postgresql-common/createcluster.conf
clusters_before=$clusters.before-lockstep

# Also what an earlier run could not put back because it was killed.
put_back() {
    if [ -e "$policy_before" ]; then
        mv -f "$policy_before" "$policy"
    elif [ -e "$policy" ] && grep -qF "$mark" "$policy"; then
        rm -f "$policy"
    fi
    if [ -e "$clusters_before" ]; then
        mv -f "$clusters_before" "$clusters"
    fi
}
put_back
trap put_back EXIT
trap 'exit 130' INT TERM HUP

if [ -e "$policy" ]; then
    mv "$policy" "$policy_before"
fi
printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
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

# Packages enable their services for the next boot. Those of this list were not installed before,
# so nobody relies on them.
disable() {
    if [ -d /run/systemd/system ]; then
        systemctl disable --quiet "$1" || true
    elif command -v update-rc.d >/dev/null; then
        update-rc.d "$1" disable || true
    fi
}
for service in redis-server pgbouncer mariadb etcd; do
    case " $* " in
    *" $service "* | *" $service-server "*) disable "$service" ;;
    esac
done
