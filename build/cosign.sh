#!/usr/bin/env bash
# cosign.sh signs and verifies what a registry has, always by digest: with a pair of keys, or without one with the identity of the
# workflow that runs (GitHub's token, Sigstore's certificate and log).
#
#   cosign.sh sign REF                  REF is REPOSITORY@sha256:...; of a list, each image too
#   cosign.sh attest TYPE FILE REF      signs FILE as a statement about REF: slsaprovenance1, cyclonedx
#   cosign.sh verify REF
#   cosign.sh verify-attestation TYPE REF   prints the statements
#
#   KEY        the pair is KEY.key and KEY.pub, and COSIGN_PASSWORD opens it
#   IDENTITY   without KEY: the workflow and tag whose signature counts; by default those that run
set -euo pipefail
cd "$(dirname "$0")/.."

cosign() { "${GO:-go}" tool -modfile=test/kit/tools/cosign/go.mod cosign "$@"; }

if [ -n "${KEY:-}" ]; then
	# A key made for a run is in no public log.
	signer=(--key "$KEY.key" --tlog-upload=false --use-signing-config=false)
	trusted=(--key "$KEY.pub" --insecure-ignore-tlog=true)
else
	signer=(--yes)
	trusted=(--certificate-identity "${IDENTITY:-https://github.com/${GITHUB_WORKFLOW_REF:-}}"
		--certificate-oidc-issuer https://token.actions.githubusercontent.com)
fi

case "${!#}" in
*@sha256:*) ;;
*) echo "${!#} names no digest: want REPOSITORY@sha256:..." >&2 && exit 2 ;;
esac

case "$1" in
sign) cosign sign --recursive "${signer[@]}" "$2" ;;
attest) cosign attest "${signer[@]}" --type "$2" --predicate "$3" "$4" ;;
verify) cosign verify "${trusted[@]}" "$2" ;;
verify-attestation) cosign verify-attestation "${trusted[@]}" --type "$2" "$3" ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
