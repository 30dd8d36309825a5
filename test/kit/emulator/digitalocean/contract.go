package digitalocean

import "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "digitalocean.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Route: "/v2/snapshots", Contains: `unknown query parameter "region"`,
			Why: "the official SDK sends it (ListSnapshotsOptions.Region)",
		},
	},
	Borrowed: map[string]string{
		"GET /v2/actions":                    "GET /v2/volumes/{volume_id}/actions",
		"DELETE /v2/tags/{tag_id}/resources": "POST /v2/tags/{tag_id}/resources",
	},
}
