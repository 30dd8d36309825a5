#!/bin/sh
# image-name.sh PROGRAM prints the name and tag that the manifests have for the image of a program.
set -eu
awk -v name="ghcr.io/cloudblock-csi/$1" '
	/name:/ { found = $NF == name }
	/newTag:/ && found { print name ":" $2; exit }
' "$(dirname "$0")/../deploy/components/images/kustomization.yaml"
