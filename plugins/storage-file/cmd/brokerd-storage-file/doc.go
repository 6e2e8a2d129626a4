// Command brokerd-storage-file is the plugin storage-file as a program of its
// own. The broker starts it.
//
// It owns nothing but the start of the process: what the plugin does is package
// storagefile's. It never reads arguments or a file of settings; the broker tells it
// all.
package main
