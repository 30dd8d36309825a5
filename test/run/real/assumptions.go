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
	{Text: "without its scope, a read of an unknown volume's actions gets 403, not 404", Why: "needs such a token"},
	{Text: "`GET` and `DELETE /v2/volumes/snapshots/{id}` need only the scopes of volume snapshots", Why: "needs a token with the documented scopes alone"},
	{Text: "tags are null without `tag:read`; a create with tags is refused without `tag:create`", Why: "needs such a token"},
	{Text: "reads and lists return a description as written, up to 255 characters", Shown: "Names/any_name"},
	{Text: "a snapshot's name may be 64 letters, digits and dashes", Shown: "Life$"},
	{Text: "a snapshot's `min_disk_size` is its volume's size, `size_gigabytes` its data's", Shown: "Life$"},
	{Text: "a read after a change of tags shows it", Shown: "ModifyVolume/tags_that_are_there"},
	{Text: "tagging a volume gets 404 if the account lacks the tag", Shown: "ModifyVolume/each_tag_replaces"},
	{Text: "the control panel offers the scope `block_storage:update`", Why: "is a page for people"},
	{Text: "a volume's name is unique in a region (409)", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a new volume is usable at once; from a snapshot it is as large as its source", Shown: "Copies/a_copy_of_a_snapshot"},
	{Text: "an attach or detach returns an action with an id, `in-progress`", Shown: "Detach/it_takes_the_volume_off"},
	{Text: "reads of a new action may get 404 for up to 10 s", Why: "shows only in the requests' log"},
	{Text: "a list keeps its order from read to read", Why: "needs an account with many volumes"},
	{Text: "the first page of `/v2/actions` has the newest actions of volumes", Why: "shows only in the number of reads"},
	{Text: "changes of a busy droplet get 422 with `pending event`", Why: "shows only in the requests' log"},
	{Text: "a detach from a droplet without the volume gets 422 `Attachment not found`", Shown: "Detach/not_attached_there"},
	{Text: "a droplet may refuse to grow an attached volume: 422 `resizing is temporarily disabled`", Why: "needs such a droplet"},
	{Text: "requests above the rate limit get 429 with `retry-after` or `ratelimit-remaining: 0`; the limit of snapshots says `one request per`, or lacks those headers", Why: "would use up the account's limit"},
	{Text: "a quota's refusal is 403 with `limit`", Why: "needs a full account"},
	{Text: "the disk reports the volume's name as its serial", Why: "is seen on the machine"},
}

var assumptionsLinode = []Assumption{
	{Text: "a create without `encryption` follows the region's default", Why: "needs a region with encryption and one without"},
	{Text: "a clone is encrypted if its source is", Why: "costs an encrypted volume; read `encryption` of a copy"},
	{Text: "an attached volume can be cloned", Why: "is recorded"},
	{Text: "the clone of a volume in use is crash consistent", Why: "needs a program on a machine that writes meanwhile"},
	{Text: "a clone lacks data written after its request was accepted", Why: "needs such a program"},
	{Text: "a clone takes minutes", Why: "depends on the data; the report has the time of each part"},
	{Text: "a clone is billed as a volume", Why: "shows on the bill"},
	{Text: "a clone lacks its source's tags", Why: "nothing depends on it"},
	{Text: "a label may contain single underscores", Why: "needs snapshots by clones, which cost as volumes"},
	{Text: "an attachment can be persistent while the configuration profile has a free slot, of 8, or one per GiB of memory up to 64", Why: "needs a machine of 16 GiB"},
	{Text: "a persistent attachment keeps `linode_id` at a boot, others lose it", Why: "needs a boot"},
	{Text: "a Linode that is off accepts a persistent attachment", Why: "needs a Linode that is off"},
	{Text: "a Linode's own disks use up volumes' slots", Why: "needs a full machine"},
	{Text: "a token without a scope gets 401 `Your OAuth token is not authorized to use this endpoint.`, a user without a permission 403 `Unauthorized`", Why: "needs such a token"},
	{Text: "`X-OAuth-Scopes` lists the token's scopes, separated by spaces or commas; `*` is all", Why: "needs a token of two scopes"},
	{Text: "a restricted user's tags may be refused: 403, or 400 or 401 naming tags", Why: "needs a restricted user"},
	{Text: "a create may leave out `tags`", Why: "the driver always sends tags with a cluster id"},
	{Text: "a filter on the label finds a volume as soon as its create is answered", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "labels are unique in an account", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "a list keeps its order from read to read", Why: "needs an account with many volumes"},
	{Text: "a label keeps its case", Shown: "FindVolume/it_returns"},
	{Text: "almost every refusal is a 400; `Linode busy.` is temporary; `field` names the parameter", Why: "is many texts; the driver decides by the state"},
	{Text: "a full region's refusal has the field `region`", Why: "needs a region that is full"},
	{Text: "a quota's refusal says `limit` or `quota` and names no field", Why: "needs a full account"},
	{Text: "only `v4beta` shows locks", Why: "needs a lock"},
	{Text: "the answer to an attach has `linode_id`, `io_ready` follows with the device; a detach ends with `linode_id` null", Shown: "Attach/it_makes"},
	{Text: "a detach cannot name the Linode; a delete accepts an attached volume", Shown: "Detach/a_late_second_detach"},
	{Text: "a list may be stale", Why: "cannot be brought about"},
	{Text: "a resized volume shows its size at once, the Linode sees it after the next attach", Shown: "ExpandVolume/it_makes_a_volume"},
	{Text: "events can be filtered by `action` and ordered by `created`", Why: "shows only when an attach has no end"},
	{Text: "an accepted delete never fails later", Shown: "DeleteVolume/it_removes"},
	{Text: "rate limits, in headers: 1600 requests, 200 lists and 100 creates a minute", Why: "would use up the account's limit"},
}

var assumptionsYandex = []Assumption{
	{Text: "the list of endpoints has `compute`, `iam` and `operation`, as host:443", Why: "shows only in the requests' log"},
	{Text: "`done` ends an operation; that answer may be the first with `metadata`, and lack timestamps", Why: "shows only in the requests' log"},
	{Text: "only instances of generation 2 boot by UEFI", Why: "is seen on the instance"},
	{Text: "instances take 62 or 80 disks (generations 1.2 and 2), 8 or 16 (1.1), boot disk and file storages included", Why: "needs a full instance"},
	{Text: "an attach beyond these numbers is ResourceExhausted with \"attached disks\"", Why: "needs a full instance"},
	{Text: "a disk shows its `disk_placement_policy`", Why: "needs a placement group"},
	{Text: "a placement group is in one zone, and refuses a disk of another", Why: "needs a placement group"},
	{Text: "a create with an unknown key or placement group is NotFound or InvalidArgument", Why: "needs a key and a group that are gone"},
	{Text: "missing rights are PERMISSION_DENIED, before anything is changed", Why: "needs an account with `compute.viewer`"},
	{Text: "`compute.editor` for the folder is enough for every call", Why: "needs an account with that role alone"},
	{Text: "disk types can be read without any role", Why: "needs an account without a role"},
	{Text: "a disk in ERROR \"encountered a problem and cannot operate\"", Why: "cannot be brought about"},
	{Text: "`DiskService/Relocate` keeps the disk's id and snapshots", Why: "needs a second zone"},
	{Text: "a repeated idempotency key returns its operation, for two weeks at most", Shown: "Concurrency/many_creates_of_one_name"},
	{Text: "the same key with another request is refused, or returns the first's operation", Shown: "CreateVolume/a_name_that_is_taken"},
	{Text: "lists show a change once its operation has ended", Shown: "DeleteVolume/it_removes"},
	{Text: "attached disks can grow, also those of whole drives", Shown: "ExpandVolume/fault.Precondition_where"},
	{Text: "a growth that needs a detach is FailedPrecondition with \"attached to\"", Why: "cannot be brought about"},
	{Text: "lists of operations have the newest first", Why: "shows only in the number of reads"},
	{Text: "an instance's list of operations has the attaches and detaches of its disks", Shown: "Detach/the_empty_node"},
	{Text: "a detach from an instance without the disk gets InvalidArgument \"Can't find disk in instance\"", Shown: "Detach/not_attached_there"},
	{Text: "a folder runs 15 operations at a time (`--yandex-max-operations`); further ones get ResourceExhausted with \"active operations\"", Why: "would use up the folder's limit"},
	{Text: "a new operation can be NotFound for some seconds", Why: "cannot be brought about"},
	{Text: "a snapshot has the data of the call's instant, except on whole drives", Why: "needs data, and so an instance"},
	{Text: "a quota of requests is RESOURCE_EXHAUSTED with \"rate quota limit exceed\"", Why: "would use up the account's limit"},
}
