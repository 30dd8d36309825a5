package digitalocean

// Scopes is the table of scopes by route.
var Scopes = scopes
