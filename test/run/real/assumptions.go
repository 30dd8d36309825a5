package real

// Assumption is a row of the table of its cloud in docs/contributing/clouds.md.
type Assumption struct {
	// Text is the row's first cell.
	Text string
	// Shown is the part of the run, as a pattern of its name, that passes only if the API is so. Empty: none.
	Shown string
	// Why no part of a run looks at it.
	Why string
}

var assumptionsDigitalOcean = []Assumption{
	{Text: "an unknown token is answered 401, with no headers of the rate limit", Why: "needs a wrong token"},
	{Text: "a token without a scope is answered 403 without the word `limit`", Why: "needs a token without a scope"},
	{Text: "the scope is checked before the volume: 403 and not 404 for the actions of a volume that does not exist", Why: "needs such a token"},
	{Text: "`GET` and `DELETE /v2/volumes/snapshots/{id}` need the scopes of volume snapshots only", Why: "needs a token with the documented scopes alone"},
	{Text: "tags are null without `tag:read`, and a create with tags is refused without `tag:create`", Why: "needs such a token"},
	{Text: "a description is answered as it was written, in every read and list, up to 255 characters", Shown: "Names/any_name"},
	{Text: "the name of a snapshot may have 64 letters, digits and dashes", Shown: "Life$"},
	{Text: "the size of a snapshot's volume is `min_disk_size`; `size_gigabytes` is what was written", Shown: "Life$"},
	{Text: "a read after a change of tags shows it", Shown: "ModifyVolume/tags_that_are_there"},
	{Text: "putting a tag on a volume answers 404 where the account has no such tag", Shown: "ModifyVolume/each_tag_replaces"},
	{Text: "the control panel's form offers `block_storage:update`", Why: "is a page for people"},
	{Text: "a name is taken once per region: 409", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a volume is usable with the answer to its create, and from a snapshot as large as its source", Shown: "Copies/a_copy_of_a_snapshot"},
	{Text: "an attach and a detach are answered with an action that is `in-progress` and has an id", Shown: "Detach/it_takes_the_volume_off"},
	{Text: "an action is 404 for at most 10 s after its answer", Why: "shows only in the requests' log"},
	{Text: "actions of volumes are in `/v2/actions`, the newest on its first page", Why: "shows only in the number of reads"},
	{Text: "a droplet that is busy answers 422 with `pending event`", Why: "shows only in the requests' log"},
	{Text: "a detach of what is not attached there is refused, with 422 `Attachment not found`; the state decides what it means", Shown: "Detach/not_attached_there"},
	{Text: "a droplet may refuse the growth of an attached volume, with 422 `resizing is temporarily disabled`", Why: "needs such a droplet"},
	{Text: "the API's limit answers 429 with `retry-after` or `ratelimit-remaining: 0`, the rule about snapshots with its words or without those headers", Why: "would use up the account's limit"},
	{Text: "quotas answer 403 with `limit`", Why: "needs a full account"},
	{Text: "the disk reports the volume's name as its serial", Why: "is seen on the machine"},
}

var assumptionsLinode = []Assumption{
	{Text: "a create without `encryption` follows the region's default", Why: "needs a region with encryption and one without"},
	{Text: "a copy is encrypted as its source is", Why: "costs an encrypted volume; read `encryption` of a copy"},
	{Text: "an attached volume can be cloned", Why: "is recorded"},
	{Text: "the clone of a volume in use has one moment of it, as a snapshot has (crash consistent)", Why: "needs a program on a machine that writes meanwhile"},
	{Text: "what is written after a clone was accepted is not in it", Why: "needs such a program"},
	{Text: "how long a clone takes: minutes", Why: "depends on the data; the report has the time of each part"},
	{Text: "a clone is billed as a volume", Why: "shows on the bill"},
	{Text: "a clone has no tags of its source", Why: "nothing depends on it"},
	{Text: "a label may have single underscores", Why: "needs snapshots by clones, which cost as volumes"},
	{Text: "an attach may persist as long as the profile has a slot; the number of slots is 8, or one for each GiB of memory up to 64", Why: "needs a machine of 16 GiB"},
	{Text: "a persistent attachment keeps `linode_id` over a boot, and others lose it", Why: "needs a boot"},
	{Text: "whether a Linode that is off takes a persistent attachment: it does", Why: "needs a Linode that is off"},
	{Text: "local disks take places of volumes", Why: "needs a full machine"},
	{Text: "a token that lacks a scope gets 401 `Your OAuth token is not authorized to use this endpoint.`, a user that lacks a permission 403 `Unauthorized`", Why: "needs such a token"},
	{Text: "`X-OAuth-Scopes` states the token's scopes, separated by blanks or commas; `*` is all", Why: "needs a token of two scopes"},
	{Text: "restricted users may be refused tags with 403, or with 400 or 401 that names tags", Why: "needs a restricted user"},
	{Text: "`tags` may be left out of a create", Why: "the driver always sends tags with a cluster id"},
	{Text: "a volume is found by a filter on its label as soon as its create was answered", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "labels are unique in an account", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a label keeps its letters as they were sent", Shown: "FindVolume/it_returns"},
	{Text: "almost every refusal is a 400; `Linode busy.` is a delay; a field names what it is about", Why: "is many texts; the driver decides by the state"},
	{Text: "a full region is refused with the field `region`", Why: "needs a region that is full"},
	{Text: "a quota's refusal says `limit` or `quota` and names no field", Why: "needs a full account"},
	{Text: "locks show with `v4beta` only", Why: "needs a lock"},
	{Text: "`linode_id` shows with the answer to an attach, `io_ready` when the device is there; a detach ends with `linode_id` null", Shown: "Attach/it_makes"},
	{Text: "a detach names no Linode, and an attached volume is deleted", Shown: "Detach/a_late_second_detach"},
	{Text: "a list may be stale", Why: "cannot be brought about"},
	{Text: "a resize shows its size at once, the Linode sees it with the next attach", Shown: "ExpandVolume/it_makes_a_volume"},
	{Text: "events can be filtered by `action` and ordered by `created`", Why: "shows only when an attach has no end"},
	{Text: "a deletion that was answered never fails later", Shown: "DeleteVolume/it_removes"},
	{Text: "1600 requests, 200 lists and 100 creates a minute, with headers", Why: "would use up the account's limit"},
}

var assumptionsYandex = []Assumption{
	{Text: "the services `compute`, `iam` and `operation` are in the list of endpoints, as host:443", Why: "shows only in the requests' log"},
	{Text: "an operation is not done until it says so; the answer that says it may be the first with `metadata`, and need not have times", Why: "shows only in the requests' log"},
	{Text: "only generation 2 boots by UEFI", Why: "is seen on the instance"},
	{Text: "62 or 80 disks of 1.2 and 2, 8 or 16 of 1.1, the boot disk and file storages among them", Why: "needs a full instance"},
	{Text: "one more is ResourceExhausted with \"attached disks\" in the text", Why: "needs a full instance"},
	{Text: "a disk shows its `disk_placement_policy`", Why: "needs a placement group"},
	{Text: "a placement group is of one zone, and a disk of another zone is refused", Why: "needs a placement group"},
	{Text: "what a create names and does not exist is NotFound or InvalidArgument", Why: "needs a key and a group that are gone"},
	{Text: "missing rights are PERMISSION_DENIED, before anything is changed", Why: "needs an account with `compute.viewer`"},
	{Text: "`compute.editor` for the folder is enough for every call", Why: "needs an account with that role alone"},
	{Text: "disk types can be read without any role", Why: "needs an account without a role"},
	{Text: "ERROR is a disk that \"encountered a problem and cannot operate\"", Why: "cannot be brought about"},
	{Text: "`DiskService/Relocate` keeps the id of the disk, and its snapshots", Why: "needs a second zone"},
	{Text: "the same idempotency key is answered with the same operation, for two weeks at most", Shown: "Concurrency/many_creates_of_one_name"},
	{Text: "the same key with another request is refused, or answered with the first one's operation", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "names are unique in a folder, or not", Why: "is true either way: both are handled"},
	{Text: "lists show a change when its operation has ended", Shown: "DeleteVolume/it_removes"},
	{Text: "an attached disk grows, those of whole drives too", Shown: "ExpandVolume/fault.Precondition_where"},
	{Text: "a growth that needs the disk free is FailedPrecondition with \"attached to\" in the text", Why: "cannot be brought about"},
	{Text: "the operations that attach and detach a disk are listed with its instance", Shown: "Detach/the_empty_node"},
	{Text: "a detach of what is not attached there is refused, with InvalidArgument \"Can't find disk in instance\"; the state decides what it means", Shown: "Detach/not_attached_there"},
	{Text: "a folder runs 15 operations at a time; more is ResourceExhausted with \"active operations\"", Why: "would use up the folder's limit"},
	{Text: "a new operation can be missing for some seconds", Why: "cannot be brought about"},
	{Text: "a snapshot's instant is that of the call, but for whole drives", Why: "needs data, and so an instance"},
	{Text: "no limit of requests for a time", Why: "needs a day"},
}
