# Times commands on the node, by the node's own clock. Each sample is a line of standard output:
#     sample COMMAND RAILS ROUND MICROSECONDS
# Arguments: how many rounds, then the numbers of rails. Round 0 warms the emulator's cache of
# translated code. Files with names, numbers and addresses were written before, one set per number
# of rails.
set -euo pipefail
export PODRAIL_ROOT=/lab/root PODRAIL_NODE_ADDRESS=10.140.67.66

dir=/run/bench pod=job netns=/run/netns/job
rounds=$1
shift

fail() {
    echo "round $round, $rails rails: $1" >&2
    cat "$dir/stderr" >&2
    exit 1
}

# What a command leaves to the kernel's own threads is not to be paid for by the next one.
timed() {
    local name=$1 start end
    shift
    sleep 0.1
    start=$EPOCHREALTIME
    "$@" >/dev/null 2>"$dir/stderr" || fail "$name failed"
    end=$EPOCHREALTIME
    echo "sample $name $rails $round $((${end/./} - ${start/./}))"
}

# The pod has so many children: what was timed was done.
children() {
    local found
    found=$(ip -n $pod -br link show type ipvlan | wc -l)
    [ "$found" = "$1" ] || fail "$found children instead of $1"
}

floor_attach() {
    ip -batch "$dir/$rails.links" &&
        nsenter --net=$netns bash "$dir/$rails.sh"
}

# Children made by the floor and deleted in some other way than by podrail.
by_ip() {
    timed "$1" floor_attach
    children "$rails"
    shift
    timed "$@"
    children 0
    ip -n $pod rule flush protocol 112
}

# shellcheck disable=SC2046 # a list of words
by_podrail() {
    timed attach-podrail podrail attach --netns $netns --id $pod --rails "$rails" --gpus $(cat "$dir/$rails.gpus")
    children "$rails"
    timed detach-podrail podrail detach --id $pod
    children 0
}

singles() { by_ip attach-ip detach-singles ip -n $pod -batch "$dir/$rails.deletes"; }

# The same attachment again, whose time is dropped: each round has one sample of each command.
group() { by_ip attach-again detach-group ip -n $pod link del group "$(cat "$dir/$rails.group")"; }

start_podrail() { timed start-podrail podrail --version; }

start_ip() { timed start-ip ip -n $pod -batch /dev/null; }

for ((round = 0; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    even=$((round % 2 == 0))
    rails=0
    if ((even)); then
        start_podrail
        start_ip
    else
        start_ip
        start_podrail
    fi
    for rails in "$@"; do
        if ((even)); then
            by_podrail
            singles
            group
        else
            group
            singles
            by_podrail
        fi
    done
done
