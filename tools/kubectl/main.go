// SPDX-License-Identifier: Apache-2.0

// A kubectl for tests, for machines that have none or one that is too old.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
