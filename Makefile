# `make test` is all that tests brokerd. The rest are its parts.

export BROKERD_CACHE ?= $(HOME)/.cache/brokerd
FUZZ_SECONDS ?= 300

.PHONY: suites test build unit race sim simulate e2e chaos clients lint fuzz cross full clean

build:
	go build -o bin/brokerd ./cmd/brokerd

test: lint unit race sim cross e2e clients

# Everything but the tests that start real brokers and clients.
PACKAGES = $(shell go list ./... | grep -v -e /test/e2e -e /test/clients -e /test/chaos)

# So many packages are tested at a time: one more than there are processors, since tests of
# transports and plugins wait for half of their time.
BESIDE = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

unit:
	go test -vet=off -p $(BESIDE) -timeout 20m $(PACKAGES)

# Packages that start no goroutine, nor do their tests (test/arch looks): the race detector
# has nothing to see there. Nor has it in simulators.
ONE_GOROUTINE = core/config core/controller core/controller/command core/group core/image core/image/topicconfig \
	core/lifecycle core/replica/streamwire core/sim/check core/wire \
	plugins/storage-file/internal/sealed plugins/storage-file/internal/segment plugins/storage-file/internal/vfs \
	sdk/recordbatch sdk/storage sdk/storage/memstore sdk/storage/memstore/memfiles test/arch
SIMULATORS = core/sim core/sim/cluster

# What is the same again for the detector is left to unit. It sees one security of
# transport-tcp and one carrier of messages, without the cases that measure memory, which
# under it is its own; and no kit of a store that is a process: the lanes of a host and of a
# plugin are those of plugintest.
race:
	go test -vet=off -race -short -p $(BESIDE) -timeout 20m \
		-skip '^TestConformsTLS$$|^TestConformsPlaintext$$|^TestConforms/^memory|^TestTransportKitOverMessages$$/^grpc$$|^TestTransportKitOverMessages$$/./^memory|^TestConformanceAsProcess$$' \
		$(filter-out $(addprefix %/,$(ONE_GOROUTINE) $(SIMULATORS)),$(PACKAGES))

# Fifteen thousand simulated runs, and seven thousand with groups of consumers, each with
# crashes; and a little of long ones of clusters.
sim:
	go test ./core/sim -run '^(TestSeeds|TestGroupSeeds)$$' -v -args -seeds 15000 -groupseeds 7000
	go run -buildvcs=false ./core/sim/simulate -for 50s -results $$(mktemp)

# Ten thousand long simulations of clusters; half a day on two processors. It goes on where it
# was stopped, and `go run ./core/sim/simulate -nightly` never ends by itself.
simulate:
	go run -buildvcs=false ./core/sim/simulate

# Tests of e2e that mostly wait run three at a time, and clients that do.
e2e:
	go test -vet=off -count=1 -timeout 20m -parallel 3 -v ./test/e2e/
	go test -vet=off -count=1 -timeout 10m -v ./test/chaos

# Fifty faults of each kind on three brokers under load, ten that grow from one, a hundred
# losses of all power, ten rounds of restarts under three clients, and an hour at full load;
# four hours.
chaos:
	go run ./test/chaos -count 50 -growths 10
	go run ./test/chaos -events none -power-cuts 50 -flush always
	go run ./test/chaos -events none -power-cuts 50 -flush replicated
	go run ./test/chaos -rolling 10 -soak 1h

# Every client, every tool and Kafka Streams, each in its cases; a table at the end.
clients:
	go test -vet=off -count=1 -timeout 30m -parallel 3 -v ./test/clients

# The whole matrix of clients, codecs and records, 50 kills of each kind, and 200 of
# plugins that have lent files; and all tests on the carriers that are not the default.
full:
	BROKERD_E2E_FULL=1 go test -count=1 -timeout 240m -v ./test/e2e/
	BROKERD_E2E_CARRIER=socket go test -count=1 -timeout 20m ./test/e2e/
	BROKERD_E2E_CARRIER=grpc go test -count=1 -timeout 20m ./test/e2e/

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	go vet ./...
	$$(scripts/tools lint) run --allow-parallel-runners
	cd test/clients/drivers/go && go vet ./... && $$(../../../../scripts/tools lint) run --allow-parallel-runners

# macOS is built, over the gRPC lane; it is tested by hand.
cross:
	GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/brokerd
	GOOS=darwin GOARCH=arm64 go vet ./sdk/... ./core/... ./cmd/...

# Every fuzz target in turn, $(FUZZ_SECONDS) seconds in all.
fuzz:
	scripts/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf bin

# The test suites of others, compared with Kafka's results; suite-franz-go, suite-kafka-go,
# suite-kafka-go-alone, suite-confluent-kafka-go, suite-sarama, suite-librdkafka and
# suite-librdkafka-more run one of them. Forty minutes in all.
suites:
	go run ./test/suites all

suite-%:
	go run ./test/suites $*
