// Package admin is the broker's HTTP listener for people and their monitoring:
//
//	GET /metrics     the metrics, in Prometheus' text form
//	GET /healthz     200 while the process answers
//	GET /readyz      200 while the broker serves clients; 503 and the reason else
//	GET /v1/status   what the broker is and has, as JSON (type Status)
//
// It owns that surface and its one schema. It changes nothing and decides
// nothing: what it tells, it is given. It has no authentication, so that it
// listens on the loopback address unless an operator says otherwise.
//
// Invariants: every path answers within answerTimeout, whatever the rest of the
// broker does (TestAnswersAreBounded); unknown paths and methods are refused
// (TestServer).
package admin
