package wire

const (
	// maxProduceParts bounds the topics, partitions and tagged fields of one Produce,
	// which may be as long as the server's largest request.
	maxProduceParts = 1 << 18
	// produceKeep is for how many of them room is kept, to be used again.
	produceKeep = 256
)

// The versions of Produce that change its layout.
const (
	produceFlexible = 9
	produceByID     = 13 // topics have IDs and no names (KIP-516)
	produceMessages = 8  // errors of records, and messages (KIP-467)
	produceStarts   = 5  // log start offsets (KIP-107)
)

// Produce is a Produce request as it came. It is made to be read into again: what it
// needs for topics and partitions it keeps. It is for one goroutine at a time.
//
// Source: Kafka's protocol, versions 3 to 13.
type Produce struct {
	TransactionalID []byte // nil is null
	Acks            int16
	TimeoutMillis   int32
	Topics          []ProduceTopic

	partitions []ProducePartition
}

// ProduceTopic is the part of a Produce about one topic: it has a name below version
// 13, and an ID from then on.
type ProduceTopic struct {
	Name       []byte
	ID         [16]byte
	Partitions []ProducePartition
}

// ProducePartition is the records for one partition, not looked at; nil is null.
type ProducePartition struct {
	Index   int32
	Records []byte
}

// Read reads the body of a request of a version that is served. What it reads shares
// the body's memory, of which nothing is changed, and is there until the next Read or
// Forget. Bytes after the request are ignored, as Kafka ignores them. The error wraps
// ErrMalformed.
//
// It takes memory for what is there, never for what a count claims.
func (p *Produce) Read(version int16, body []byte) error {
	r := reader{src: body, flexible: version >= produceFlexible, left: produceKeep}
	p.read(&r, version, true)
	if r.left >= 0 {
		return r.end("Produce", version, maxProduceParts)
	}
	// It has more parts than most: they are counted before there is room made for them.
	r = reader{src: body, flexible: r.flexible, left: maxProduceParts}
	topics, partitions := p.read(&r, version, false)
	if err := r.end("Produce", version, maxProduceParts); err != nil {
		return err
	}
	p.Topics, p.partitions = make([]ProduceTopic, 0, topics), make([]ProducePartition, 0, partitions)
	r = reader{src: body, flexible: r.flexible, left: maxProduceParts}
	p.read(&r, version, true)
	return nil
}

// read goes through a request, counts its topics and partitions, and keeps them or not.
func (p *Produce) read(r *reader, version int16, keep bool) (topics, partitions int) {
	p.Topics, p.partitions = p.Topics[:0], p.partitions[:0]
	p.TransactionalID = r.text()
	p.Acks = r.int16()
	p.TimeoutMillis = r.int32()
	for i := r.arrayLen(); i > 0 && !r.bad; i-- {
		r.part()
		var t ProduceTopic
		if version >= produceByID {
			t.ID = r.uuid()
		} else {
			t.Name = r.name()
		}
		first := len(p.partitions)
		for j := r.arrayLen(); j > 0 && !r.bad; j-- {
			r.part()
			part := ProducePartition{Index: r.int32(), Records: r.bytes()}
			r.tags()
			if partitions++; keep {
				p.partitions = append(p.partitions, part)
			}
		}
		r.tags()
		if topics++; keep {
			t.Partitions = p.partitions[first:len(p.partitions):len(p.partitions)]
			p.Topics = append(p.Topics, t)
		}
	}
	r.tags()
	return topics, partitions
}

// Forget lets go of the body, so that a Produce that waits to be read into holds no
// memory but what little it keeps.
func (p *Produce) Forget() {
	topics, partitions := p.Topics, p.partitions
	*p = Produce{}
	if cap(topics) <= produceKeep && cap(partitions) <= produceKeep {
		clear(topics)
		clear(partitions)
		p.Topics, p.partitions = topics[:0], partitions[:0]
	}
}
