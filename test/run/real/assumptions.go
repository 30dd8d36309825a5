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
	{Text: "an unknown token gets 401, without rate-limit headers", Why: "needs a wrong token"},
	{Text: "a token that lacks a scope gets 403 without the word `limit`", Why: "needs a token without a scope"},
	{Text: "without the scope, the actions of an unknown volume answer 403, not 404", Why: "needs such a token"},
	{Text: "`GET` and `DELETE /v2/volumes/snapshots/{id}` need only the scopes of volume snapshots", Why: "needs a token with the documented scopes alone"},
	{Text: "tags are null without `tag:read`; a create with tags is refused without `tag:create`", Why: "needs such a token"},
	{Text: "reads and lists have a description as written, up to 255 characters", Shown: "Names/any_name"},
	{Text: "a snapshot's name may have 64 letters, digits and dashes", Shown: "Life$"},
	{Text: "a snapshot's `min_disk_size` is the size of its volume, `size_gigabytes` what was written", Shown: "Life$"},
	{Text: "a read after a change of tags shows it", Shown: "ModifyVolume/tags_that_are_there"},
	{Text: "tagging a volume answers 404 if the account lacks the tag", Shown: "ModifyVolume/each_tag_replaces"},
	{Text: "the control panel's form offers `block_storage:update`", Why: "is a page for people"},
	{Text: "a name is taken once per region: 409", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a created volume is usable at once; from a snapshot it is as large as its source", Shown: "Copies/a_copy_of_a_snapshot"},
	{Text: "an attach or detach answers an action with an id, `in-progress`", Shown: "Detach/it_takes_the_volume_off"},
	{Text: "a new action may be 404, for at most 10 s", Why: "shows only in the requests' log"},
	{Text: "the first page of `/v2/actions` has the newest actions of volumes", Why: "shows only in the number of reads"},
	{Text: "a busy droplet answers 422 with `pending event`", Why: "shows only in the requests' log"},
	{Text: "a detach of what is not attached there gets 422 `Attachment not found`", Shown: "Detach/not_attached_there"},
	{Text: "a droplet may refuse to grow an attached volume: 422 `resizing is temporarily disabled`", Why: "needs such a droplet"},
	{Text: "the rate limit answers 429 with `retry-after` or `ratelimit-remaining: 0`; the rule about snapshots says `one request per`, or lacks those headers", Why: "would use up the account's limit"},
	{Text: "quotas answer 403 with `limit`", Why: "needs a full account"},
	{Text: "the disk reports the volume's name as its serial", Why: "is seen on the machine"},
}

var assumptionsLinode = []Assumption{
	{Text: "a create without `encryption` follows the region's default", Why: "needs a region with encryption and one without"},
	{Text: "a copy is encrypted as its source is", Why: "costs an encrypted volume; read `encryption` of a copy"},
	{Text: "an attached volume can be cloned", Why: "is recorded"},
	{Text: "the clone of a volume in use is crash consistent", Why: "needs a program on a machine that writes meanwhile"},
	{Text: "a clone lacks what is written after its request was accepted", Why: "needs such a program"},
	{Text: "a clone takes minutes", Why: "depends on the data; the report has the time of each part"},
	{Text: "a clone is billed as a volume", Why: "shows on the bill"},
	{Text: "a clone lacks its source's tags", Why: "nothing depends on it"},
	{Text: "a label may have single underscores", Why: "needs snapshots by clones, which cost as volumes"},
	{Text: "an attach may persist while the profile has a free slot, of 8 or of one per GiB of memory up to 64", Why: "needs a machine of 16 GiB"},
	{Text: "a persistent attachment keeps `linode_id` over a boot, others lose it", Why: "needs a boot"},
	{Text: "a Linode that is off takes a persistent attachment", Why: "needs a Linode that is off"},
	{Text: "local disks take slots of volumes", Why: "needs a full machine"},
	{Text: "a token that lacks a scope gets 401 `Your OAuth token is not authorized to use this endpoint.`, a user that lacks a permission 403 `Unauthorized`", Why: "needs such a token"},
	{Text: "`X-OAuth-Scopes` lists the token's scopes, separated by blanks or commas; `*` is all", Why: "needs a token of two scopes"},
	{Text: "a restricted user's tags may be refused: 403, or 400 or 401 that names tags", Why: "needs a restricted user"},
	{Text: "a create may leave out `tags`", Why: "the driver always sends tags with a cluster id"},
	{Text: "a filter on the label finds a volume as soon as its create is answered", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "labels are unique in an account", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a label keeps its case", Shown: "FindVolume/it_returns"},
	{Text: "almost every refusal is a 400; `Linode busy.` is a delay; a field names what it is about", Why: "is many texts; the driver decides by the state"},
	{Text: "a full region is refused with the field `region`", Why: "needs a region that is full"},
	{Text: "a quota's refusal says `limit` or `quota` and names no field", Why: "needs a full account"},
	{Text: "only `v4beta` shows locks", Why: "needs a lock"},
	{Text: "`linode_id` shows with the answer to an attach, `io_ready` when the device is there; a detach ends with `linode_id` null", Shown: "Attach/it_makes"},
	{Text: "a detach names no Linode, and an attached volume is deleted", Shown: "Detach/a_late_second_detach"},
	{Text: "a list may be stale", Why: "cannot be brought about"},
	{Text: "a resize shows its size at once, the Linode sees it with the next attach", Shown: "ExpandVolume/it_makes_a_volume"},
	{Text: "events can be filtered by `action` and ordered by `created`", Why: "shows only when an attach has no end"},
	{Text: "a deletion that was answered never fails later", Shown: "DeleteVolume/it_removes"},
	{Text: "1600 requests, 200 lists and 100 creates a minute, with headers", Why: "would use up the account's limit"},
}

var assumptionsYandex = []Assumption{
	{Text: "the list of endpoints has `compute`, `iam` and `operation`, as host:443", Why: "shows only in the requests' log"},
	{Text: "an operation is done when it says so; that answer may be the first with `metadata`, and lack times", Why: "shows only in the requests' log"},
	{Text: "only generation 2 boots by UEFI", Why: "is seen on the instance"},
	{Text: "instances take 62 or 80 disks (generations 1.2 and 2), 8 or 16 (1.1), boot disk and file storages included", Why: "needs a full instance"},
	{Text: "an attach above that is ResourceExhausted with \"attached disks\"", Why: "needs a full instance"},
	{Text: "a disk shows its `disk_placement_policy`", Why: "needs a placement group"},
	{Text: "a placement group is of one zone, and refuses a disk of another", Why: "needs a placement group"},
	{Text: "a create that names something unknown is NotFound or InvalidArgument", Why: "needs a key and a group that are gone"},
	{Text: "missing rights are PERMISSION_DENIED, before anything is changed", Why: "needs an account with `compute.viewer`"},
	{Text: "`compute.editor` for the folder is enough for every call", Why: "needs an account with that role alone"},
	{Text: "disk types can be read without any role", Why: "needs an account without a role"},
	{Text: "ERROR is a disk that \"encountered a problem and cannot operate\"", Why: "cannot be brought about"},
	{Text: "`DiskService/Relocate` keeps the disk's id and snapshots", Why: "needs a second zone"},
	{Text: "an idempotency key is answered with its operation, for two weeks at most", Shown: "Concurrency/many_creates_of_one_name"},
	{Text: "the same key with another request is refused, or answered with the first's operation", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "lists show a change when its operation has ended", Shown: "DeleteVolume/it_removes"},
	{Text: "an attached disk grows, those of whole drives too", Shown: "ExpandVolume/fault.Precondition_where"},
	{Text: "a growth that needs the disk free is FailedPrecondition with \"attached to\"", Why: "cannot be brought about"},
	{Text: "an instance's list of operations has the attaches and detaches of its disks", Shown: "Detach/the_empty_node"},
	{Text: "a detach of what is not attached there gets InvalidArgument \"Can't find disk in instance\"", Shown: "Detach/not_attached_there"},
	{Text: "a folder runs 15 operations at a time (`--yandex-max-operations`); more is ResourceExhausted with \"active operations\"", Why: "would use up the folder's limit"},
	{Text: "a new operation can be missing for some seconds", Why: "cannot be brought about"},
	{Text: "a snapshot's instant is that of the call, but for whole drives", Why: "needs data, and so an instance"},
	{Text: "requests have no rate limit", Why: "needs a day"},
}
