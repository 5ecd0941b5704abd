import { useData } from "../api";
import { Page } from "../ui";

interface Service {
  name: string;
  owner: string;
}

export default function Services() {
  const services = useData<{ items: Service[] }>("/services", { every: 10_000 });
  return (
    <Page title="Services" says="The services that this console looks at." data={services}>
      <ul>{services.data?.items.map((one) => <li key={one.name}>{one.name}</li>)}</ul>
    </Page>
  );
}
