export { Act, Acting, type Outcome, type Params, type Preview } from "./act";
export { BulkAct } from "./bulk";
