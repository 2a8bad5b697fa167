# SPDX-License-Identifier: Apache-2.0
"""Real nodes: kubelet, containerd and runc, each node in its own namespaces.

`network` joins the nodes, `images` makes their two images, `node` starts and
breaks one node, and `packages` installs what Debian has.
"""
