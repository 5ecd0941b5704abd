package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	tick  = 20 * time.Millisecond
	most  = 200     // messages in one answer
	large = 1 << 20 // and bytes, but for the last message
)

// letter is one message for one subscription. It is out while a stream holds it, and waits otherwise.
type letter struct {
	message  *pb.PubsubMessage
	acked    bool
	ackID    string // of the last delivery; "" once that no longer counts
	attempts int32
	holder   *reader // nil while it waits
	deadline time.Time
}

// box is a subscription. Acknowledged letters stay, for seek.
type box struct {
	proto   *pb.Subscription
	letters []*letter
	first   int // all before it are acknowledged
	readers []*reader
	byID    map[string]*letter
	sync    *reader // holds what unary pulls were given
}

// reader is one streaming pull.
type reader struct {
	limit   int // messages out at a time
	seconds int32
	out     int
	silent  bool // let a deadline pass: others are preferred
	bell    chan struct{}
}

// office is the subscriber's side of the service.
type office struct {
	pb.UnimplementedSubscriberServer
	mu    sync.Mutex
	fake  *pstest.GServer
	boxes map[string]*box
	last  time.Time
}

func newOffice(fake *pstest.GServer) *office {
	o := &office{fake: fake, boxes: map[string]*box{}}
	go func() {
		for range time.Tick(tick) {
			o.expire(time.Now())
		}
	}()
	return o
}

// counter passes what was published on to the subscriptions.
type counter struct {
	pb.PublisherServer
	office *office
}

func (c *counter) Publish(ctx context.Context, req *pb.PublishRequest) (*pb.PublishResponse, error) {
	if len(req.Messages) > 1000 {
		return nil, status.Error(codes.InvalidArgument, "more than 1,000 messages")
	}
	for _, m := range req.Messages {
		if m.OrderingKey != req.Messages[0].OrderingKey {
			return nil, status.Error(codes.InvalidArgument, "a request holds messages of one ordering key")
		}
		if len(m.Attributes) > 100 || len(m.Data) == 0 && len(m.Attributes) == 0 {
			return nil, status.Error(codes.InvalidArgument, "no data, or more than 100 attributes")
		}
	}
	c.office.mu.Lock()
	defer c.office.mu.Unlock()
	answer, err := c.PublisherServer.Publish(ctx, req) // it writes the ids into the messages
	if err != nil {
		return nil, err
	}
	for _, m := range req.Messages {
		m.PublishTime = timestamppb.New(c.office.stamp())
	}
	for _, b := range c.office.boxes {
		if b.proto.Topic == req.Topic {
			for _, m := range req.Messages {
				l := &letter{message: m}
				b.letters = append(b.letters, l)
				b.byID[m.MessageId] = l
			}
			b.wake()
		}
	}
	return answer, nil
}

func (c *counter) DeleteTopic(ctx context.Context, req *pb.DeleteTopicRequest) (*emptypb.Empty, error) {
	c.office.mu.Lock()
	defer c.office.mu.Unlock()
	for _, b := range c.office.boxes {
		if b.proto.Topic == req.Topic {
			b.proto.Topic = "_deleted-topic_"
		}
	}
	return c.PublisherServer.DeleteTopic(ctx, req)
}

// stamp is the time in whole microseconds, never the same twice.
func (o *office) stamp() time.Time {
	now := time.Now().Truncate(time.Microsecond)
	if !now.After(o.last) {
		now = o.last.Add(time.Microsecond)
	}
	o.last = now
	return now
}

func (o *office) CreateSubscription(ctx context.Context, s *pb.Subscription) (*pb.Subscription, error) {
	topics := []string{s.Topic}
	if s.DeadLetterPolicy != nil {
		topics = append(topics, s.DeadLetterPolicy.DeadLetterTopic)
	}
	for _, topic := range topics {
		if _, err := o.fake.GetTopic(ctx, &pb.GetTopicRequest{Topic: topic}); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.boxes[s.Name] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "subscription %q", s.Name)
	}
	s.State = pb.Subscription_ACTIVE
	b := &box{proto: s, byID: map[string]*letter{}}
	b.sync = &reader{limit: 1 << 30, seconds: s.AckDeadlineSeconds, bell: make(chan struct{}, 1)}
	o.boxes[s.Name] = b
	return s, nil
}

func (o *office) GetSubscription(_ context.Context, req *pb.GetSubscriptionRequest) (*pb.Subscription, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.box(req.Subscription)
	if err != nil {
		return nil, err
	}
	return b.proto, nil
}

func (o *office) ListSubscriptions(_ context.Context, req *pb.ListSubscriptionsRequest) (*pb.ListSubscriptionsResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := &pb.ListSubscriptionsResponse{}
	for _, b := range o.boxes {
		answer.Subscriptions = append(answer.Subscriptions, b.proto)
	}
	return answer, nil
}

func (o *office) DeleteSubscription(_ context.Context, req *pb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.box(req.Subscription); err != nil {
		return nil, err
	}
	delete(o.boxes, req.Subscription)
	return &emptypb.Empty{}, nil
}

func (o *office) Acknowledge(_ context.Context, req *pb.AcknowledgeRequest) (*emptypb.Empty, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.box(req.Subscription)
	if err != nil {
		return nil, err
	}
	for _, id := range req.AckIds {
		if l := b.find(id); l != nil {
			l.release()
			l.acked = true
		}
	}
	for b.first < len(b.letters) && b.letters[b.first].acked {
		b.first++
	}
	b.wake()
	return &emptypb.Empty{}, nil
}

func (o *office) ModifyAckDeadline(_ context.Context, req *pb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.box(req.Subscription)
	if err != nil {
		return nil, err
	}
	returned := false
	for _, id := range req.AckIds {
		if l := b.find(id); l != nil && l.holder != nil {
			l.deadline = time.Now().Add(time.Duration(req.AckDeadlineSeconds) * time.Second)
			returned = returned || req.AckDeadlineSeconds == 0
		}
	}
	if returned {
		b.expire(time.Now().Add(time.Nanosecond), true)
	}
	return &emptypb.Empty{}, nil
}

func (o *office) Seek(_ context.Context, req *pb.SeekRequest) (*pb.SeekResponse, error) {
	target, ok := req.Target.(*pb.SeekRequest_Time)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "no snapshots here")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.box(req.Subscription)
	if err != nil {
		return nil, err
	}
	for _, l := range b.letters {
		l.release()
		l.ackID = ""
		l.acked = l.message.PublishTime.AsTime().Before(target.Time.AsTime())
	}
	b.first = 0
	b.wake()
	return &pb.SeekResponse{}, nil
}

func (o *office) Pull(_ context.Context, req *pb.PullRequest) (*pb.PullResponse, error) {
	end := time.Now().Add(500 * time.Millisecond)
	for {
		o.mu.Lock()
		b, err := o.box(req.Subscription)
		if err != nil {
			o.mu.Unlock()
			return nil, err
		}
		got := b.take(b.sync, int(req.MaxMessages))
		o.mu.Unlock()
		if len(got) > 0 || time.Now().After(end) {
			return &pb.PullResponse{ReceivedMessages: got}, nil
		}
		time.Sleep(tick)
	}
}

func (o *office) StreamingPull(stream pb.Subscriber_StreamingPullServer) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	r := &reader{limit: int(req.MaxOutstandingMessages), seconds: req.StreamAckDeadlineSeconds, bell: make(chan struct{}, 1)}
	if r.limit <= 0 {
		r.limit = 1 << 30
	}
	o.mu.Lock()
	b, err := o.box(req.Subscription)
	if err != nil {
		o.mu.Unlock()
		return err
	}
	b.readers = append(b.readers, r)
	b.wake()
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		b.readers = slices.DeleteFunc(b.readers, func(other *reader) bool { return other == r })
		b.wake()
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ended:
			return nil
		case <-r.bell:
		}
		for {
			o.mu.Lock()
			got := b.take(r, most)
			o.mu.Unlock()
			if len(got) == 0 {
				break
			}
			if err := stream.Send(&pb.StreamingPullResponse{ReceivedMessages: got}); err != nil {
				return err
			}
		}
	}
}

func (o *office) expire(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.boxes {
		b.expire(now, false)
	}
}

func (o *office) box(name string) (*box, error) {
	if b := o.boxes[name]; b != nil {
		return b, nil
	}
	return nil, status.Errorf(codes.NotFound, "subscription %s", name)
}

// take gives a reader what waits for it, in order. A key that another reader holds, or of which something earlier waits
// for another reader, is passed over.
func (b *box) take(r *reader, limit int) []*pb.ReceivedMessage {
	var got []*pb.ReceivedMessage
	elsewhere, size := map[string]bool{}, 0
	for _, l := range b.letters[b.first:] {
		if len(got) >= limit || size > large || r.out >= r.limit {
			break
		}
		key := l.message.OrderingKey
		switch {
		case l.acked || l.holder == r:
		case l.holder != nil:
			elsewhere[key] = key != ""
		case elsewhere[key] || b.chosen(l) != r && !b.holds(r, key):
			elsewhere[key] = key != ""
		default:
			got = append(got, b.hand(l, r))
			size += len(l.message.Data)
		}
	}
	return got
}

func (b *box) hand(l *letter, r *reader) *pb.ReceivedMessage {
	l.attempts++
	l.holder = r
	r.out++
	l.ackID = fmt.Sprintf("%s:%d", l.message.MessageId, l.attempts)
	l.deadline = time.Now().Add(time.Duration(r.seconds) * time.Second)
	received := &pb.ReceivedMessage{AckId: l.ackID, Message: l.message}
	if b.proto.DeadLetterPolicy != nil {
		received.DeliveryAttempt = l.attempts
	}
	return received
}

// holds says whether a reader has a letter of the key already: then the next ones are for it as well.
func (b *box) holds(r *reader, key string) bool {
	if key == "" || r.out == 0 {
		return false
	}
	for _, l := range b.letters[b.first:] {
		if l.holder == r && l.message.OrderingKey == key {
			return true
		}
	}
	return false
}

func (b *box) chosen(l *letter) *reader {
	if len(b.readers) == 0 {
		return b.sync
	}
	readers := b.readers
	if slices.ContainsFunc(readers, func(r *reader) bool { return !r.silent }) {
		readers = slices.DeleteFunc(slices.Clone(readers), func(r *reader) bool { return r.silent })
	}
	if len(readers) == 1 {
		return readers[0]
	}
	sum := fnv.New32a()
	if l.message.OrderingKey != "" {
		sum.Write([]byte(l.message.OrderingKey))
	} else {
		sum.Write([]byte(l.message.MessageId))
	}
	return readers[sum.Sum32()%uint32(len(readers))]
}

// expire takes back what is overdue, or was `returned`, and as the service does all later letters of its key.
func (b *box) expire(now time.Time, returned bool) {
	late := map[string]bool{}
	some := false
	for _, l := range b.letters[b.first:] {
		key := l.message.OrderingKey
		if l.holder != nil && (now.After(l.deadline) || late[key]) {
			l.holder.silent = l.holder.silent || !returned
			l.release()
			late[key] = key != ""
			some = true
		}
	}
	if some {
		b.wake()
	}
}

func (b *box) find(ackID string) *letter {
	for i := len(ackID) - 1; i > 0; i-- {
		if ackID[i] == ':' {
			if l := b.byID[ackID[:i]]; l != nil && l.ackID == ackID {
				return l
			}
			return nil
		}
	}
	return nil
}

func (b *box) wake() {
	for _, r := range b.readers {
		select {
		case r.bell <- struct{}{}:
		default:
		}
	}
}

func (l *letter) release() {
	if l.holder != nil {
		l.holder.out--
		l.holder = nil
	}
}
