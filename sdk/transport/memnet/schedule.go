package memnet

// alarmKind is what an end of a link waits for.
type alarmKind uint8

const (
	arrival alarmKind = iota // the first of what is under way from it arrives
	wake                     // its node is to be told something
	expiry                   // its dialling, or itself, ends
	alarmKinds
)

// Where an alarm is, when it has no place in the schedule.
const (
	unset   int32 = -1
	waiting int32 = -2 // it was due, and waits for the end of a fault
)

// alarm is one entry of the schedule.
type alarm struct {
	at   int64
	seq  uint64
	end  int32
	kind alarmKind
}

// before orders alarms by time, then by when they were set.
func (a *alarm) before(b *alarm) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}

// set sets an alarm of an end, in place of what was set.
func (m *Machine) set(e int32, kind alarmKind, at int64) {
	m.unset(e, kind)
	m.seq++
	m.alarms = append(m.alarms, alarm{at: at, seq: m.seq, end: e, kind: kind})
	m.up(len(m.alarms) - 1)
}

// unset takes an alarm away.
func (m *Machine) unset(e int32, kind alarmKind) {
	place := &m.end(e).place[kind]
	at := int(*place)
	*place = unset
	if at < 0 {
		return
	}
	last := len(m.alarms) - 1
	moved := m.alarms[last]
	m.alarms = m.alarms[:last]
	if at == last {
		return
	}
	m.alarms[at] = moved
	m.down(at)
	m.up(int(m.end(moved.end).place[moved.kind]))
}

// up moves the alarm at i to its place towards the first.
func (m *Machine) up(i int) {
	a := m.alarms[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !a.before(&m.alarms[parent]) {
			break
		}
		m.put(i, m.alarms[parent])
		i = parent
	}
	m.put(i, a)
}

// down moves the alarm at i to its place away from the first.
func (m *Machine) down(i int) {
	a := m.alarms[i]
	for {
		child := 2*i + 1
		if child >= len(m.alarms) {
			break
		}
		if right := child + 1; right < len(m.alarms) && m.alarms[right].before(&m.alarms[child]) {
			child = right
		}
		if !m.alarms[child].before(&a) {
			break
		}
		m.put(i, m.alarms[child])
		i = child
	}
	m.put(i, a)
}

func (m *Machine) put(i int, a alarm) {
	m.alarms[i] = a
	m.end(a.end).place[a.kind] = int32(i)
}
