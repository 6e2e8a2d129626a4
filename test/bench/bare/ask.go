package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asked are the requests that are understood beside produce, and in which version. All
// are flexible.
var asked = map[kmsg.Key]int16{kmsg.CreateTopics: 7, kmsg.DeleteTopics: 6, kmsg.ListOffsets: 7}

// ask answers a request that is not measured.
func (c *conn) ask(request []byte) ([]byte, error) {
	key, version := kmsg.Key(binary.BigEndian.Uint16(request)), int16(binary.BigEndian.Uint16(request[2:]))
	if known, ok := asked[key]; !ok || version != known {
		return nil, fmt.Errorf("%w: %s, version %d", errRequest, key.Name(), version)
	}
	body, ok := behindClient(request)
	if !ok || len(body) == 0 || body[0] != 0 {
		return nil, fmt.Errorf("%w: its header", errRequest)
	}
	req := key.Request()
	req.SetVersion(version)
	if err := req.ReadFrom(body[1:]); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errRequest, key.Name(), err)
	}
	var (
		resp kmsg.Response
		err  error
	)
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp, err = c.s.createTopics(req)
	case *kmsg.DeleteTopicsRequest:
		resp, err = c.s.deleteTopics(req)
	case *kmsg.ListOffsetsRequest:
		resp = c.s.listOffsets(req)
	}
	if err != nil {
		return nil, err
	}
	return framed(binary.BigEndian.Uint32(request[4:]), resp), nil
}

func (s *server) createTopics(req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for _, rt := range req.Topics {
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = rt.Topic
		t, err := s.create(rt.Topic, int(rt.NumPartitions))
		switch {
		case errors.Is(err, errExists):
			out.ErrorCode = kerr.TopicAlreadyExists.Code
		case errors.Is(err, errTooMany):
			out.ErrorCode = kerr.InvalidPartitions.Code
		case err != nil:
			return nil, err
		default:
			out.TopicID, out.NumPartitions, out.ReplicationFactor = t.id, rt.NumPartitions, 1
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

// deleteTopics deletes topics by ID.
func (s *server) deleteTopics(req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	for _, rt := range req.Topics {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.TopicID = rt.TopicID
		found, err := s.delete(rt.TopicID)
		if err != nil {
			return nil, err
		}
		if !found {
			out.ErrorCode = kerr.UnknownTopicID.Code
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

// listOffsets says where partitions end, whatever time is asked for.
func (s *server) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, rt := range req.Topics {
		t := s.find(func(t *topic) bool { return t.name == rt.Topic })
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			out := kmsg.NewListOffsetsResponseTopicPartition()
			out.Partition = rp.Partition
			if p := t.at(rp.Partition); p != nil {
				out.Offset = p.offset()
			} else {
				out.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
