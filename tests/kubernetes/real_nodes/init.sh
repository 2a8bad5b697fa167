#!/bin/sh
# The first process of a node: init.sh FOLDER NAME CGROUP ADDRESS/BITS GATEWAY
# FOLDER is the node's disk. The namespaces are new: mounts, pids, network, name.
set -eu
folder=$1 name=$2 cgroup=$3 address=$4 gateway=$5

hostname "$name"
mount --make-rshared /
mount --bind "$folder/lib" /var/lib
mount --bind "$folder/log" /var/log
mount -t tmpfs tmpfs /run

# The kubelet sets these for the whole machine. Here it finds them set.
for sysctl in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 \
  kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
  kernel/keys/root_maxbytes=25000000; do
  file=/run/sysctl-$(echo "${sysctl%=*}" | tr / -)
  echo "${sysctl#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${sysctl%=*}"
done

# The node's own group in each hierarchy.
for hierarchy in /sys/fs/cgroup/*; do
  [ -e "$hierarchy/cgroup.procs" ] || continue
  mkdir -p "$hierarchy$cgroup"
  part=$hierarchy
  for step in $(echo "$cgroup" | tr / ' '); do
    for file in cpuset.cpus cpuset.mems; do
      [ -e "$part/$step/$file" ] && cat "$part/$file" >"$part/$step/$file"
    done
    part=$part/$step
  done
done

until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip address add "$address" dev eth0
ip link set eth0 up
ip route add default via "$gateway"

containerd --config "$folder/containerd.toml" >>"$folder/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for image in "$folder"/images/*.tar; do
  ctr --namespace k8s.io images import --snapshotter overlayfs "$image" >/dev/null
done
touch "$folder/ready"
wait
