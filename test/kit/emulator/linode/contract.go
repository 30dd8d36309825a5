package linode

import "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "linode.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Contains: `parameter "X-Filter" in header has an error: empty value`,
			Why: "the official SDK sends the header also when there is no filter",
		},
		{
			Method: "GET", Route: prefix + "/regions", Contains: `unknown query parameter "page`,
			Why: "the official SDK asks for pages of every list, and how long they may be; the answers are pages",
		},
		{
			Method: "GET", Route: prefix + "/volumes/types", Contains: `unknown query parameter "page`,
			Why: "as for regions: linodego's recording TestVolumeType_List",
		},
		{
			Method: "POST", Route: prefix + "/volumes/{volumeId}/detach", Contains: "request body not allowed",
			Why: "the official SDK sends an empty object, and the real API takes it",
		},
		{
			Method: "POST", Route: prefix + "/volumes", Contains: `property "locks" is unsupported`,
			Why: "the answer of v4beta has it: package recorded, TestVolume_Create",
		},
		{
			Method: "GET", Route: prefix + "/account/events", Contains: `/secondary_entity": Value is not nullable`,
			Why: "an event without a second object has a null there: linodego's recording TestEventPoller_Secondary",
		},
		{
			Contains: `Content-Type has unexpected value: "text/html"`,
			Why:      "a gateway in front of the API answers for it with a page",
		},
		{
			Method: "GET", Contains: `property "site_type" is unsupported`,
			Why: "the description calls it site-type; the real API and the official SDK say site_type",
		},
	},
}
