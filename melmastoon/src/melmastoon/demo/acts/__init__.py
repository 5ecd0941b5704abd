"""What guests, desks and houses do, each as one function. All of it is what people do by HTTP elsewhere: commands of services,
in transactions of the services. No act waits for what follows from it."""
