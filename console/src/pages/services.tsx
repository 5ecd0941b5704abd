import { useData } from "../api";
import { Page, Table } from "../ui";

interface Service {
  name: string;
  owner: string;
}

export default function Services() {
  const services = useData<{ items: Service[] }>("/services", { every: 10_000 });
  return (
    <Page title="Services" says="The services that this console looks at, and the teams that answer for them." data={services}>
      <Table
        caption="Services"
        rows={services.data?.items ?? []}
        id={(one) => one.name}
        empty="No service was found."
        columns={[
          { title: "Service", cell: (one) => one.name },
          { title: "Owner", wide: true, cell: (one) => one.owner || <span class="muted">nobody is named</span> },
        ]}
      />
    </Page>
  );
}
