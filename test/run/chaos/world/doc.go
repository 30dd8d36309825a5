// Package world is the account of a run: an emulated cloud with its real backend, in which calls meet trouble and
// controllers die in the middle of them, and the truth about it. A cloud is known here by its traits and its scene.
package world
