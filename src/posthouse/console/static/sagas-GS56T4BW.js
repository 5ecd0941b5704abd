import{a,b,c,d,e}from"./chunk-T4INXQWA.js";import"./chunk-RK44OP5K.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
