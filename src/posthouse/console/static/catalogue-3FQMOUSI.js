import{a,b}from"./chunk-QBYJ7ZNH.js";import"./chunk-GMSRVF4Z.js";export{b as RightsOf,a as default};
