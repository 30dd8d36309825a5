#!/bin/sh
# provenance.sh prints how this build came about, as the predicate of SLSA's provenance v1: the repository, the commit, and who built.
set -eu
cd "$(dirname "$0")/.."

repository="${GITHUB_SERVER_URL:-https://github.com}/${GITHUB_REPOSITORY:-cloudblock-csi/cloudblock-csi}"
builder="$repository#make-release" # by hand, on some machine
run="$builder"
if [ -n "${GITHUB_WORKFLOW_REF:-}" ]; then
	builder="$GITHUB_SERVER_URL/$GITHUB_WORKFLOW_REF"
	run="$repository/actions/runs/$GITHUB_RUN_ID/attempts/$GITHUB_RUN_ATTEMPT"
fi
cat <<JSON
{
  "buildDefinition": {
    "buildType": "$repository/blob/main/docs/contributing/releasing.md",
    "externalParameters": {"repository": "$repository", "version": "$(build/names.sh version)"},
    "resolvedDependencies": [{"uri": "git+$repository", "digest": {"gitCommit": "$(git rev-parse HEAD)"}}]
  },
  "runDetails": {
    "builder": {"id": "$builder"},
    "metadata": {"invocationId": "$run"}
  }
}
JSON
