import{a,b,c,d,e}from"./chunk-2DGVXO2M.js";import"./chunk-TJIABYMO.js";import"./chunk-GY434X63.js";import"./chunk-GMSRVF4Z.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
