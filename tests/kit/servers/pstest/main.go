// A Pub/Sub for the tests on the loopback: Google's pstest, with delivery as the service does it.
//
// pstest keeps the topics and takes what is published. By itself it hands out one message of an ordering key at a time,
// looks at every message a hundred times a second, and crashes when a subscription is sought to the past. So unless
// -plain is given, subscriptions are those of delivery.go.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const largest = 10_000_000 // bytes of a request, by the service's limit

func main() {
	address := flag.String("listen", "127.0.0.1:0", "where to listen")
	plain := flag.Bool("plain", false, "pstest as it is")
	flag.Parse()
	pstest.SetMinAckDeadline(time.Second)
	fake := pstest.NewServer()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(largest),
		grpc.MaxSendMsgSize(largest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}), // as patient as the service
	)
	if *plain {
		pb.RegisterPublisherServer(server, &fake.GServer)
		pb.RegisterSubscriberServer(server, &fake.GServer)
	} else {
		office := newOffice(&fake.GServer)
		pb.RegisterPublisherServer(server, &counter{PublisherServer: &fake.GServer, office: office})
		pb.RegisterSubscriberServer(server, office)
	}
	fmt.Println(listener.Addr())
	log.Fatal(server.Serve(listener))
}
