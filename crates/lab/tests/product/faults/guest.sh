# Helpers of the fault tests, run on the node by `bash -euo pipefail`. A process costs 20 to 50 ms
# under emulation: hence `ip -batch`, and sqlite3 instead of `podrail status`.

export PODRAIL_ROOT=/lab/root PODRAIL_NODE_ADDRESS=10.140.67.66
STATE=/var/lib/podrail/state.db
printf '%s\n' 'link show' 'addr show' 'rule show' 'route show table all' 'netconf show' > /tmp/everything

# Rows of the state file; none where there is no file yet.
rows() { [ ! -e $STATE ] || sqlite3 -readonly $STATE "$1"; }

# What is held: one line for each lease, rail and sandbox.
held() {
    rows "select 'lease', sandbox, rail, address from leases order by 2, 3;
          select 'rail', sandbox, rail, netdev, share from binding_rails order by 2, 3;
          select 'state', sandbox, state from bindings order by 2"
}

# Everything that an attachment touches in the host, in the given namespaces (`netconf` has their
# rp_filter), and in the books.
look() {
    ip -d -j link
    for pod in "$@"; do ip -n "$pod" -d -j -batch /tmp/everything; done
    held
}

# `same FILE POD...`: nothing is different from an earlier look.
same() {
    look "${@:2}" > /tmp/now
    if cmp -s "$1" /tmp/now; then echo -n same; else echo -n different; diff "$1" /tmp/now >&2 || true; fi
}

# The rails of a namespace as the kernel has them, one line for each link, rule, route and setting.
rails_in() {
    ip -n "$1" -d -j -batch /tmp/everything | jq -r '.[] |
        if .linkinfo.info_kind? == "ipvlan" and .addr_info
        then "link \(.ifname) \(.linkinfo.info_data.mode) \(.mtu) " + (if .flags | contains(["UP", "LOWER_UP"]) then "up" else "down" end) +
             " \(.ifalias) " +
             ([.addr_info[] | select(.family == "inet") | "\(.local)/\(.prefixlen)"] | join(","))
        elif .priority and .protocol == "112" then "rule \(.src) \(.table) \(.priority)"
        elif .dst and .protocol == "112" then "route \(.dst) \(.dev) \(.table) \(.prefsrc)"
        else empty end'
    nsenter --net=/run/netns/"$1" sh -c 'cd /proc/sys/net && grep . ipv4/conf/all/rp_filter \
        ipv4/conf/net*/arp_announce ipv4/conf/net*/arp_filter ipv4/conf/net*/arp_ignore \
        ipv4/conf/net*/rp_filter ipv4/conf/net*/accept_local ipv6/conf/net*/accept_ra'
}

# The same lines as they must be, given what a sandbox holds.
rails_of() {
    rows "create temp table mine as select rail, address, rail + 1 as net, rail + 100 as place,
              '10.239.255.0/24' as subnet from leases where sandbox = '$1';
          select printf('link net%d l2 4220 up podrail:$1:%d %s/24', net, rail, address) from mine;
          select printf('rule %s %d %d', address, place, 30000 + place) from mine;
          select printf('route %s net%d %d %s', subnet, net, place, address) from mine;
          select printf('ipv4/conf/net%d/%s', net, value) from mine, json_each('[\"arp_announce:2\",
              \"arp_filter:1\", \"arp_ignore:1\", \"rp_filter:0\", \"accept_local:1\"]');
          select printf('ipv6/conf/net%d/accept_ra:0', net) from mine;
          select 'ipv4/conf/all/rp_filter:0';
          select state from bindings where sandbox = '$1'"
}

# `whole POD SANDBOX`: all that the sandbox holds stands in the kernel, nothing more, and is ready;
# with the number of its rails.
whole() {
    { rails_in "$1"; echo ready; } | sort > /tmp/is
    rails_of "$2" | sort > /tmp/must
    if cmp -s /tmp/is /tmp/must
    then echo -n "whole:$(grep -c ^link /tmp/is)"
    else echo -n broken; diff /tmp/must /tmp/is >&2 || true
    fi
}

attach() { podrail attach --netns /run/netns/"$1" --id "$2" --rails "$3" "${@:4}"; }
detach() { podrail detach --id "$1"; }

# `fails FAULTS COMMAND...`: its exit code; what it said is in /tmp/said.
fails() {
    local code=0
    PODRAIL_FAULT=$1 "${@:2}" > /tmp/said 2>&1 || code=$?
    echo -n $code
}

# A namespace that has things of others in all the places where ours will be.
foreign_pod() {
    ip netns add "$1"
    ip -n "$1" link set lo up
    ip link add "veth-$1" type veth peer name eth0 netns "$1"
    ip link set "veth-$1" addrgenmode none up
    ip -n "$1" link set eth0 addrgenmode none up
    ip -n "$1" addr add 10.88.0.5/24 dev eth0
    ip -n "$1" route add default via 10.88.0.1
    ip -n "$1" rule add from 10.9.9.9 lookup 100 priority 500
    ip -n "$1" route add 10.77.0.0/24 via 10.88.0.1 table 100
    nsenter --net=/run/netns/"$1" sh -c 'echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter'
}

plain_pod() {
    ip netns add "$1"
    ip -n "$1" link set lo up
}
