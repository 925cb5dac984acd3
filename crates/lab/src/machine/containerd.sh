# Starts and stops containerd in the guest. LOG and SOCKET are set.
PIDFILE=/run/containerd.pid

running() { [ -e $PIDFILE ] && [ -d /proc/$(<$PIDFILE) ]; }

# What systemd does on a real node.
prepare() {
    mkdir -p /etc/cdi /var/run/cdi /var/lib/containerd /var/log /sys/fs/cgroup
    findmnt -n /sys/fs/cgroup >/dev/null || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in $(</sys/fs/cgroup/cgroup.controllers); do
        echo +$controller >/sys/fs/cgroup/cgroup.subtree_control || true
    done
    # Not the initial root, which is no file system that overlayfs is used on.
    [ "$(findmnt -no TARGET -T /var/lib/containerd)" != / ] ||
        mount -t tmpfs tmpfs /var/lib/containerd
}

# Of this start, not of one before.
said() { [[ $(tail -c +$FROM $LOG) == *"$1"* ]]; }

start() {
    running && return
    prepare
    touch $LOG
    FROM=$(($(stat -c %s $LOG) + 1))
    rm -f $SOCKET
    # Nodes for RDMA have LimitMEMLOCK=infinity in containerd's service.
    ulimit -l unlimited
    setsid containerd >>$LOG 2>&1 </dev/null &
    echo $! >$PIDFILE
    SECONDS=0
    # The CRI's last word before it takes requests.
    until [ -S $SOCKET ] && said 'successfully booted' && said 'Start streaming server'; do
        if ! running || [ $SECONDS -gt 120 ]; then
            { echo "containerd is not ready after $SECONDS s; its last lines:"; tail -n 15 $LOG | cut -c 1-400; } >&2
            return 1
        fi
        sleep 0.2
    done
    local imported=/var/lib/containerd/images-imported
    [ -e $imported ] || ctr -n k8s.io images import /lab/images.tar
    touch $imported
}

stop() {
    running || return 0
    local pid=$(<$PIDFILE)
    kill -$1 $pid
    SECONDS=0
    while [ -d /proc/$pid ]; do
        [ $SECONDS -lt 30 ] || { echo "containerd does not end" >&2; return 1; }
        sleep 0.1
    done
    rm -f $PIDFILE
}
