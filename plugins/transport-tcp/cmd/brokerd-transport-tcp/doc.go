// Command brokerd-transport-tcp is the plugin transport-tcp as a program of its
// own. The broker starts it.
//
// It owns nothing but the start of the process: what the plugin does is package
// transporttcp's. It never reads arguments or a file of settings; the broker tells it
// all.
package main
