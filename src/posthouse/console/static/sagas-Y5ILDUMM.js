import{a,b,c,d,e}from"./chunk-IJB6RQKQ.js";import"./chunk-JTEQ7IJJ.js";import"./chunk-GVZMEJOK.js";import"./chunk-6TNAKNS3.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
