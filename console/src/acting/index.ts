export { Act, Acting, type Outcome, type Params, type Preview } from "./act";
export { Resend } from "./resend";
export { BulkAct, BulkActing, useSettled } from "./bulk";
